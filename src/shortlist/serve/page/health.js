// Health: every check with what it means and what to do; charts of the last hour.
import { get } from "./api.js";
import { bars, drawn, lines } from "./charts.js";
import { count, h, percent, plural, prose } from "./dom.js";

const WORDS = { ok: "✓ Good", warning: "▲ Watch", bad: "✕ Act", unknown: "– Too little data" };
const ORDER = ["bad", "warning", "ok", "unknown"];
const EVERY = 10_000;
const WIDE = "List lengths"; // has a bar for every length

export async function health(view) {
  const title = h("h1", { tabindex: -1 }, "Health");
  const live = h("input", { type: "checkbox", id: "live", checked: true });
  const grid = h("div", { class: "grid" }), panels = h("div", { class: "grid" }), problem = h("div", {});
  const cards = new Map(), charts = new Map();
  view.place.replaceChildren(title,
    h("p", { class: "muted" }, "The last hour of the whole service. ", h("label", { for: "live", class: "inline" }, live, " Update every 10 seconds")),
    problem, grid, panels);
  const timer = setInterval(() => { if (live.checked && !document.hidden) draw(); }, EVERY);
  view.stop = () => clearInterval(timer);
  await draw();

  async function draw() {
    try {
      const status = await get("/v1/status");
      if (view.isOver()) return;
      problem.replaceChildren();
      set(title, headline(status.checks));
      showChecks(status.checks);
      showPanels(status);
    } catch (error) {
      if (view.isOver()) return;
      problem.replaceChildren(view.failure(error));
    }
  }

  // Cards stay in place and only their changed texts are set, so that nobody who reads one loses the place.
  function showChecks(checks) {
    const sorted = [...checks].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
    sorted.forEach((check, index) => {
      if (!cards.has(check.name)) cards.set(check.name, checkCard(check.name));
      const card = cards.get(check.name);
      card.update(check);
      if (grid.children[index] !== card.element) grid.insertBefore(card.element, grid.children[index] ?? null);
    });
    for (const [name, card] of cards) if (!checks.some((one) => one.name === name)) { card.element.remove(); cards.delete(name); }
  }

  function showPanels(status) {
    const found = describe(status);
    for (const [name, [text, draw]] of Object.entries(found)) {
      if (!charts.has(name)) {
        const one = { draw, text: h("p", { class: "muted" }), chart: drawn((width) => one.draw(width)) };
        charts.set(name, one);
        panels.append(h("section", { class: name === WIDE ? "card wide" : "card" }, h("h2", {}, name), one.text, one.chart.place));
      }
      const one = charts.get(name);
      one.draw = draw;
      set(one.text, text);
      one.chart.again();
    }
  }
}

function headline(checks) {
  const names = (state) => checks.filter((one) => one.state === state).map((one) => one.name);
  const bad = names("bad"), warning = names("warning");
  if (bad.length) return `Act now: ${bad.join(", ")}`;
  if (warning.length) return `Working, but watch: ${warning.join(", ")}`;
  return names("ok").length ? "Everything is in order" : "No data yet";
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function checkCard(name) {
  const state = h("span", { class: "state" }), value = h("p", { class: "figure" }), sentence = h("p", {});
  const now = h("p", { class: "todo" }), later = h("p", {});
  const folded = h("details", {}, h("summary", {}, "If this turns red"), later);
  const element = h("section", { class: "card check" }, h("h2", {}, h("span", {}, name), state), value, sentence, now, folded);
  let action = null;
  const update = (check) => {
    const urgent = check.state === "bad" || check.state === "warning";
    state.className = `state ${check.state}`;
    element.dataset.state = check.state;
    set(state, WORDS[check.state] || check.state);
    set(value, check.value);
    set(sentence, check.sentence);
    if (action !== check.action) for (const place of [now, later]) place.replaceChildren(place === now ? "What to do: " : "", ...prose(check.action));
    action = check.action;
    now.hidden = !urgent || !action;
    folded.hidden = urgent || !action;
  };
  return { element, update };
}

// What the charts show: {title: [sentence, draw(width)]}.
function describe(status) {
  const clock = (value) => new Date(value * 1000).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
  const minutes = filled(status);
  const end = minutes.at(-1).minute;
  const line = (label, name) => (width) =>
    lines(width, label, "time of day", minutes.filter((one) => one[name] !== null).map((one) => ({ x: one.minute, y: one[name] })),
      { yText: count, xText: clock, whole: true, low: minutes[0].minute, high: end, height: 200 });
  const total = (name) => minutes.reduce((sum, one) => sum + (one[name] || 0), 0);
  const lengths = [...new Set([...Object.keys(status.lengths.now), ...Object.keys(status.lengths.model)].map(Number))];
  const range = Array.from({ length: Math.max(0, ...lengths) + 1 }, (_, length) => length);
  const groups = range.map((length) => ({ label: String(length), values: [status.lengths.now[length] || 0, status.lengths.model[length] || 0] }));
  const mean = (shares) => Object.entries(shares).reduce((sum, [length, share]) => sum + Number(length) * share, 0);
  const nowText = Object.keys(status.lengths.now).length ? `${mean(status.lengths.now).toFixed(1)} items on average within the last hour (green)` : "No lists within the last hour";
  return {
    "Lists per minute": [`${plural(total("lists"), "list")} within the last hour.`, line(`Lists per minute; ${count(total("lists"))} within the last hour`, "lists")],
    "Events per minute": [`${plural(total("events"), "event")} within the last hour.`, line(`Events per minute; ${count(total("events"))} within the last hour`, "events")],
    "Time to answer": ["Milliseconds within which 99% of the requests for lists were answered.", line("Milliseconds within which 99% of the requests for lists were answered", "milliseconds")],
    "List lengths": [`${nowText}; ${mean(status.lengths.model).toFixed(1)} in lists of the model for a sample of its users (orange).`,
      (width) => bars(width, `Share of lists by length, within the last hour and of the model for a sample of its users. ${nowText}.`, "items in the list", groups, ["last hour", "model"], 200)],
  };
  return found;
}

// All minutes of the last hour; minutes without a request have no row in the answer.
function filled(status) {
  const rows = new Map(status.minutes.map((one) => [one.minute, one]));
  const end = Math.floor(status.now / 60) * 60;
  return Array.from({ length: 60 }, (_, index) => {
    const minute = end - (59 - index) * 60, row = rows.get(minute);
    return { minute, lists: row?.lists ?? 0, events: row?.events ?? 0, milliseconds: row?.p99 ? row.p99 * 1000 : null };
  });
}
