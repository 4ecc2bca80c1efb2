// Name of the element with the focus; says if the focus cannot be seen.
() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const isQuiet = one === document.body || one.localName === "h1" || one.id === "main";
  const isVisible = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (!isQuiet && !isVisible) return `INVISIBLE ${one.outerHTML}`;
  const labels = [...(one.labels || [])].map((label) => label.textContent.trim()).join();
  return one.getAttribute("aria-label") || labels || one.textContent.trim();
}
