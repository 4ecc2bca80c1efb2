// Health: each check with a sentence that says what to do when it is red.
import { get } from "./api.js";
import { bars, lines } from "./charts.js";
import { h } from "./dom.js";

const WORDS = { ok: "✓ good", warning: "▲ look", bad: "✕ act", unknown: "– unknown" };
const EVERY = 5000;

export async function health(main, failure) {
  const body = h("div", {});
  main.replaceChildren(h("h1", {}, "Health"), h("p", { class: "muted" }, "The last hour, all workers together; updated every five seconds."), body);
  await draw();
  const timer = setInterval(draw, EVERY);

  async function draw() {
    try {
      const status = await get("/v1/status");
      const focused = document.activeElement?.closest("details")?.dataset.name;
      const open = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.name));
      body.replaceChildren(checks(status.checks, open), charts(status));
      if (focused) body.querySelector(`details[data-name="${CSS.escape(focused)}"] summary`)?.focus();
    } catch (error) {
      body.replaceChildren(failure(error));
    }
  }
  return () => clearInterval(timer);
}

const checks = (found, open) => h("div", { class: "grid" }, found.map((check) =>
  h("section", { class: "card check" },
    h("h2", {}, check.name, h("span", { class: `state ${check.state}` }, WORDS[check.state])),
    h("div", { class: "figure" }, check.value),
    h("p", {}, check.sentence),
    check.action ? h("details", { "data-name": check.name, open: check.state === "bad" || open.has(check.name) }, h("summary", {}, "What to do"), h("p", {}, check.action)) : null)));

function charts(status) {
  const lengths = [...new Set([...Object.keys(status.lengths.now), ...Object.keys(status.lengths.training)].map(Number))].sort((a, b) => a - b);
  const groups = lengths.map((length) => ({ label: String(length), values: [status.lengths.now[length] || 0, status.lengths.training[length] || 0] }));
  const minutes = status.minutes.map((one) => ({ x: one.minute, y: one.lists }));
  const events = status.minutes.map((one) => ({ x: one.minute, y: one.events }));
  const clock = (value) => new Date(value * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const count = (value) => (value < 10 ? value.toFixed(1) : value.toFixed(0));
  const options = { yText: count, xText: clock };
  return h("div", { class: "grid", style: null },
    panel("Lists per minute", minutes.length ? lines("Lists per minute", "time", minutes, options) : "No lists yet."),
    panel("Events per minute", events.length ? lines("Events per minute", "time", events, options) : "No events yet."),
    panel("List lengths: now (green) and when the model was loaded (orange)", groups.length ? bars("List lengths now and when the model was loaded", "items in the list", groups, ["now", "when loaded"]) : "No lists yet."));
}

const panel = (title, content) => h("section", { class: "card" }, h("h2", {}, title), content);
