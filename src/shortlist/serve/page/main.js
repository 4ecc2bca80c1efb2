// Chooses the view from the address and handles the token.
import { get, token, ApiError } from "./api.js";
import { h, message } from "./dom.js";
import { lookup } from "./lookup.js";
import { tradeoff } from "./tradeoff.js";
import { health } from "./health.js";
import { models } from "./models.js";

const VIEWS = { lookup, tradeoff, health, models };
const main = document.getElementById("main");
let leave = null;

export function failure(error) {
  if (!(error instanceof ApiError)) throw error;
  const box = message(error.message, error.hint, "bad");
  if (error.status === 401 || error.status === 403) box.append(h("button", { type: "button", onclick: openToken }, "Enter a token"));
  return box;
}

async function show() {
  const name = location.hash.slice(1).split("/")[0] || "lookup";
  const view = VIEWS[name] || lookup;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${name in VIEWS ? name : "lookup"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (leave) leave();
  leave = null;
  main.replaceChildren(h("p", { class: "muted" }, "Loading …"));
  try {
    leave = await view(main, failure);
  } catch (error) {
    main.replaceChildren(failure(error));
  }
}

async function showModel() {
  try {
    const model = await get("/v1/model");
    document.getElementById("model-name").textContent = `· ${model.name}`;
    document.getElementById("version").textContent = `shortlist ${model.version}`;
  } catch {
    document.getElementById("model-name").textContent = "";
  }
}

const dialog = document.getElementById("token-dialog");
const input = document.getElementById("token-input");
export function openToken() {
  input.value = token.get();
  dialog.showModal();
}
document.getElementById("token-button").addEventListener("click", openToken);
dialog.addEventListener("close", () => {
  if (dialog.returnValue === "save") token.set(input.value.trim());
  if (dialog.returnValue === "clear") token.set("");
  if (["save", "clear"].includes(dialog.returnValue)) { showModel(); show(); }
});

window.addEventListener("hashchange", () => { show(); main.focus(); });
showModel();
show();
