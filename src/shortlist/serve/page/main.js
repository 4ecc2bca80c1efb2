// Chooses the view from the address and handles the token.
import { ApiError, get, token } from "./api.js";
import { h, message } from "./dom.js";
import { experiment } from "./experiment.js";
import { health } from "./health.js";
import { lookup } from "./lookup.js";
import { models } from "./models.js";

const VIEWS = { lookup: ["Look up", lookup], experiment: ["Experiment", experiment], health: ["Health", health], models: ["Models", models] };
const main = document.getElementById("main");
let current = { stop: () => {} };

// What went wrong, as an element. Anything but an answer of the service is a defect and goes to the console.
function failure(error) {
  if (!(error instanceof ApiError)) throw error;
  const box = message(error.message, error.hint, "bad");
  if (error.status === 401 || error.error === "scope_needed") box.append(h("button", { type: "button", onclick: openToken }, "Enter a token"));
  return box;
}

// A view fills its own element, so that an old view that still loads cannot overwrite a new one.
async function show({ focus }) {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const key = name in VIEWS ? name : "lookup";
  const [title, view] = VIEWS[key];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${key}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · shortlist`;
  current.stop();
  const place = h("div", {}, h("h1", { tabindex: -1 }, title), h("p", { class: "muted" }, "Loading …"));
  const visit = { place, stop: () => {}, isOver: () => current !== visit, rest: rest.join("/"), failure, changed: showModel };
  current = visit;
  main.replaceChildren(place);
  try {
    await view(visit);
  } catch (error) {
    place.replaceChildren(h("h1", { tabindex: -1 }, title), failure(error));
  }
  if (focus && !visit.isOver() && (document.activeElement === document.body || document.activeElement === main)) place.querySelector("h1")?.focus();
}

async function showModel() {
  const name = document.getElementById("model-name"), version = document.getElementById("version");
  try {
    const model = await get("/v1/model");
    name.textContent = `· ${model.name}`;
    version.textContent = `· shortlist ${model.version}`;
  } catch {
    name.textContent = "";
  }
}

const dialog = document.getElementById("token-dialog");
const input = document.getElementById("token-input");
function openToken() {
  input.value = token.get();
  dialog.returnValue = "cancel";
  dialog.showModal();
}
document.getElementById("token-button").addEventListener("click", openToken);
dialog.addEventListener("close", () => {
  if (dialog.returnValue === "save") token.set(input.value.trim());
  if (dialog.returnValue === "clear") token.set("");
  input.value = "";
  if (["save", "clear"].includes(dialog.returnValue)) start();
});

// An address like #token=… brings its token, which does not stay in the address.
function takeToken() {
  if (!location.hash.startsWith("#token=")) return;
  token.set(decodeURIComponent(location.hash.slice("#token=".length)));
  history.replaceState(null, "", "#lookup");
}

function start() {
  takeToken();
  showModel();
  show({ focus: false });
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { takeToken(); main.focus(); show({ focus: true }); });
start();
