// An accessibility audit of the document as it is shown now; returns findings as sentences.
() => {
  const found = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const name = (element) => {
    const ids = element.getAttribute("aria-labelledby");
    if (ids) return ids.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    const own = element.getAttribute("aria-label");
    if (own) return own.trim();
    if (element.labels?.length) return [...element.labels].map((label) => label.textContent).join(" ").trim();
    return [element.textContent, ...all("img", element).map((image) => image.alt)].join(" ").trim();
  };
  const where = (element) => `<${element.localName}> ${(name(element) || element.outerHTML).slice(0, 60)}`;
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    && !element.closest(".unseen") && !element.closest(".skip:not(:focus)") && element.getClientRects().length > 0;
  const check = (holds, text) => { if (!holds) found.push(text); };

  check(document.documentElement.lang === "en", "html has no lang");
  check(document.title.length > 5, "the title is empty");
  for (const landmark of ["main", "header"]) check(all(landmark).length === 1, `there must be one ${landmark}`);
  for (const nav of all("nav")) check(name(nav) !== nav.textContent.trim(), "a nav has no label");
  const headings = all("h1, h2, h3, h4").filter((one) => shown(one) || one.classList.contains("unseen")).filter((one) => !one.closest("dialog"));
  check(headings.filter((one) => one.localName === "h1").length === 1, "there must be one h1");
  headings.forEach((one, index) => check(index === 0 ? one.localName === "h1" : Number(one.localName[1]) <= Number(headings[index - 1].localName[1]) + 1, `heading out of order: ${where(one)}`));
  const ids = all("[id]").map((one) => one.id);
  check(new Set(ids).size === ids.length, `ids occur twice: ${ids.filter((id, index) => ids.indexOf(id) !== index)}`);
  for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const one of all(`[${attribute}]`)) for (const id of one.getAttribute(attribute).split(" ")) check(document.getElementById(id), `${attribute} names nothing: ${where(one)}`);
  }
  for (const one of all("input, select, textarea, button, a[href], summary, dialog")) check(name(one) || one.closest("dialog:not([open])"), `no name: ${one.outerHTML.slice(0, 80)}`);
  for (const one of all("input, select, textarea")) check(one.labels.length || one.hasAttribute("aria-label"), `no label: ${where(one)}`);
  for (const one of all("img")) check(one.hasAttribute("alt"), "an image has no alt");
  for (const one of all("svg")) check(one.getAttribute("aria-hidden") === "true" || (one.getAttribute("role") === "img" && one.hasAttribute("aria-label")), "an svg has no label");
  for (const one of all("[tabindex]")) check(Number(one.getAttribute("tabindex")) <= 0, `tabindex above 0: ${where(one)}`);
  for (const one of all("[onclick], [style]")) check(false, `inline script or style: ${where(one)}`);
  for (const one of all("table")) check(one.caption || one.hasAttribute("aria-label"), "a table has no caption");
  for (const one of all("th")) check(one.hasAttribute("scope") && one.textContent.trim(), `th without scope or text: ${where(one)}`);
  for (const one of all("ul > :not(li), ol > :not(li), dl > :not(div)")) check(false, `wrong child of a list: ${where(one)}`);
  for (const one of all("div, span, p, td, li")) check(!one.hasAttribute("onclick") && one.getAttribute("role") !== "button", `not a real button: ${where(one)}`);
  for (const one of all("button, input, select, summary, nav a").filter(shown)) {
    const box = one.getBoundingClientRect();
    check(one.type === "checkbox" || (box.width >= 24 && box.height >= 24), `smaller than 24 pixels: ${where(one)}`);
  }
  check(document.documentElement.scrollWidth <= window.innerWidth, `wider than the window: ${document.documentElement.scrollWidth}`);

  // Contrast, from the computed colors of the text and of everything below it.
  const parse = (text) => { const parts = text.match(/[\d.]+/g).map(Number); return { rgb: parts.slice(0, 3), alpha: parts[3] ?? 1 }; };
  const over = (top, below) => top.rgb.map((value, index) => value * top.alpha + below[index] * (1 - top.alpha));
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const layer = parse(getComputedStyle(one).backgroundColor);
      if (layer.alpha > 0) layers.unshift(layer);
      if (layer.alpha === 1) break;
    }
    return layers.reduce((below, layer) => over(layer, below), parse(getComputedStyle(document.documentElement).backgroundColor).rgb);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => { const [low, high] = [light(one), light(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  const texts = all("body *").filter((one) => shown(one) && !one.closest(":disabled, option") && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  for (const one of [...texts, ...all("input:not([type=range]):not([type=checkbox])").filter(shown)]) {
    const style = getComputedStyle(one), below = background(one);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const seen = ratio(over(parse(one instanceof SVGElement ? style.fill : style.color), below), below);
    check(seen >= (large ? 3 : 4.5), `contrast ${seen.toFixed(2)}: ${where(one)}`);
  }
  for (const one of all("input:not([type=range]):not([type=checkbox]), select, button.quiet").filter(shown)) {
    const seen = ratio(parse(getComputedStyle(one).borderTopColor).rgb, background(one.parentElement));
    check(seen >= 3, `contrast of the border ${seen.toFixed(2)}: ${where(one)}`);
  }
  check(texts.length > 10, "nothing was audited");
  return [...new Set(found)];
}
