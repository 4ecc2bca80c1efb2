// Builds elements. Texts are always set as text, never as HTML.
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children.flat());
  return element;
}

export const field = (label, input) => {
  input.id ||= `field-${Math.random().toString(36).slice(2)}`;
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
};

export const message = (text, hint = "", kind = "") =>
  h("div", { class: `message ${kind}`, role: kind === "bad" ? "alert" : "status" }, h("p", {}, text), hint ? h("p", { class: "muted" }, hint) : null);

export const percent = (value, digits = 0) => `${(value * 100).toFixed(digits)}%`;
export const when = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString() : "–");
