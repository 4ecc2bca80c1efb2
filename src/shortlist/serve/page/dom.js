// Builds elements. Texts are always set as text, never as HTML.
export function h(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

export function s(name, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function build(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value" && "value" in element) element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

let fields = 0;
export function field(label, input, help = "") {
  fields += 1;
  input.id ||= `field-${fields}`;
  const text = help ? h("span", { class: "help", id: `help-${fields}` }, help) : null;
  if (text) input.setAttribute("aria-describedby", text.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, ...[label].flat()), input, text);
}

export const message = (text, hint = "", kind = "") =>
  h("div", { class: `message ${kind}`, role: kind === "bad" ? "alert" : "status" },
    h("p", {}, text), hint ? h("p", { class: "muted" }, hint) : null);

// Why nothing can be changed, where the service has no token file.
export const NO_TOKENS = "Changing the service needs a token with the scope admin. Start the service with `--token_file`; `shortlist service token` creates one.";
export const refusal = (id) => h("p", { class: "help", id }, ...prose(NO_TOKENS));

// Text with `code` in it.
export const prose = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));

export const percent = (value, digits = 0) => `${(value * 100).toFixed(digits)}%`;
export const count = (value) => Math.round(value).toLocaleString("en");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const DAY = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeZone: "UTC" });
const MOMENT = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

// Seconds since 1970. Data that knows only days has times at midnight UTC.
export const day = (seconds) => (seconds % 86400 === 0 ? DAY : MOMENT).format(new Date(seconds * 1000));
export const moment = (seconds) => MOMENT.format(new Date(seconds * 1000));

let answer = () => {};  // to the question that is asked now

// Asks before the service is changed; true if the answer is yes.
export function confirmed(text, yes) {
  const dialog = document.getElementById("confirm-dialog");
  answer(false);
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  // the event "close" of an earlier question may come when this one is already open
  dialog.onclose = () => dialog.open || answer(dialog.returnValue === "yes");
  dialog.showModal();
  return new Promise((resolve) => { answer = resolve; });
}
