// Look up: a user's history, the list, the line where it ends, and what was left out.
import { get, post } from "./api.js";
import { count, day, field, h, message, percent, plural, s } from "./dom.js";

const WITHHELD = 8;
const BASKETS = 20;
const WORDS = { "item bias": "how popular it is", "bought before": "earlier purchases of it", "own baskets": "the user's own baskets", "user and last baskets": "what the user bought before and last", neighbors: "similar users" };
const ENDS = [
  ["auto", "the cutoff in service"],
  ["boundary", "the boundary of the model"],
  ["3", "3 items for everyone"],
  ["5", "5 items for everyone"],
  ["10", "10 items for everyone"],
  ["20", "20 items for everyone"],
];

export async function lookup(view) {
  const { has_boundary: hasBoundary, examples: users } = await get("/v1/model");
  const ends = ENDS.filter(([value]) => value !== "boundary" || hasBoundary);
  const user = h("input", { name: "user", autocomplete: "off", spellcheck: "false", required: true, value: decoded(view.rest) });
  const candidates = h("input", { autocomplete: "off", spellcheck: "false" });
  const exclude = h("input", { autocomplete: "off", spellcheck: "false" });
  const least = h("input", { type: "number", min: 0, max: 1000, step: 1, inputmode: "numeric" });
  const most = h("input", { type: "number", min: 0, max: 1000, step: 1, inputmode: "numeric" });
  const first = select(ends, "auto"), second = select([["", "nothing"], ...ends], "");
  const result = h("div", {});
  let asked = 0; // an answer to an earlier question is not shown
  const said = h("p", { class: "unseen", role: "status" });
  const examples = h("p", { class: "examples" }, users.length ? "For example: " : "", ...users.map((id) =>
    h("button", { type: "button", class: "chip", onclick: () => { user.value = String(id); ask(); } }, String(id))));
  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); ask(); } },
    h("div", { class: "row" },
      field("User id", user),
      field("Cutoff", first),
      field("Compare with", second),
      h("button", {}, "Show list")),
    examples,
    h("details", {}, h("summary", {}, "Candidates and limits"),
      h("div", { class: "row" },
        field("Only these items", candidates, "Item ids, separated by commas. Empty: all items."),
        field("Never these items", exclude, "Item ids, separated by commas."),
        field("At least", least, "Items in the list."),
        field("At most", most, "Items in the list."))));
  view.place.replaceChildren(
    h("h1", { tabindex: -1 }, "What does a user get, and why?"),
    h("p", { class: "muted" }, "The list that the service returns now, where it ends, what is left out, and what the user did before."),
    form, said, result);
  for (const one of [first, second]) one.addEventListener("change", () => { if (user.value.trim()) load(); });
  if (user.value) await load();

  function ask() {
    const address = `#lookup/${encodeURIComponent(user.value.trim())}`;
    if (location.hash !== address) history.replaceState(null, "", address);
    load();
  }

  async function load() {
    const id = user.value.trim();
    if (!id) return;
    asked += 1;
    const number = asked;
    said.textContent = "";
    result.setAttribute("aria-busy", "true");
    try {
      const person = await get(`/v1/users/${encodeURIComponent(id)}`);
      const base = { users: [person.user_id], withheld: WITHHELD, explain: true, ...limits() };
      const choices = [first.value, second.value].filter(Boolean);
      const answers = await Promise.all(choices.map((choice) => post("/v1/recommend", { ...base, ...ending(choice) })));
      if (number !== asked) return;
      const cards = answers.map((answer, index) => listCard(answer.lists[0], answer, choices[index]));
      result.replaceChildren(h("div", { class: cards.length > 1 ? "pair" : "main-and-side" }, cards, historyCard(person)));
      said.textContent = answers.map((answer) => title(answer.lists[0])).join("; ");
    } catch (error) {
      if (number !== asked) return;
      result.replaceChildren(error.error === "unknown_id" ? unknown(id) : view.failure(error));
    } finally {
      if (number === asked) result.removeAttribute("aria-busy");
    }
  }

  function limits() {
    const found = {};
    if (ids(candidates).length) found.candidates = ids(candidates);
    if (ids(exclude).length) found.exclude = ids(exclude);
    if (least.value !== "") found.min_items = Number(least.value);
    if (most.value !== "") found.max_items = Number(most.value);
    return found;
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const ids = (input) => input.value.split(",").map((one) => one.trim()).filter(Boolean);
const ending = (choice) => (/^\d+$/.test(choice) ? { N: Number(choice) } : { cutoff: choice });

function select(options, initial) {
  const found = h("select", {}, options.map(([value, text]) => h("option", { value }, text)));
  found.value = initial;
  return found;
}

const unknown = (id) => message(`The model does not know the user ${id}.`,
  "An unknown user gets an empty list. Check the id, or send events of this user to POST /v1/events.");

const title = (list) => (list.items.length ? `${plural(list.items.length, "item")} recommended` : "Nothing is recommended");

function listCard(list, answer, choice) {
  const withheld = list.withheld || [];
  const all = [...list.items, ...withheld];
  const known = all.some((item) => item.probability !== null && item.probability !== undefined);
  const top = Math.max(1e-9, ...all.map((item) => (known ? item.probability || 0 : item.score)));
  const row = (item, rank, kind) => itemRow(item, rank, kind, known, top);
  const why = list.explanation || list.reason || "";
  return h("section", { class: "card" },
    h("h2", {}, title(list)),
    h("p", { class: "muted" }, `Cutoff: ${ENDS.find(([value]) => value === choice)[1]}${choice === "auto" ? ` (${answer.cutoff})` : ""}.`),
    answer.notes.map((note) => message(note)),
    h("table", { class: "list" },
      h("caption", { class: "unseen" }, "Items of the list, then the items that were left out"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "rank" }, h("span", { class: "unseen" }, "Rank")), h("th", { scope: "col" }, "Item"), h("th", { scope: "col", class: "number" }, known ? "Probability" : "Score"))),
      h("tbody", {}, list.items.map((item, index) => row(item, index + 1, ""))),
      h("tbody", { class: "end" }, h("tr", {}, h("td", { colspan: 3 }, list.items.length ? `The list ends here: ${why}.` : `No list: ${why}.`))),
      withheld.length ? h("tbody", { class: "withheld" }, h("tr", {}, h("th", { colspan: 3, scope: "rowgroup" }, "Left out, best first")), withheld.map((item) => row(item, "", "withheld"))) : null),
    h("p", { class: "help" }, known ? "Probability: how likely the user is to choose the item next, as the cutoff expects." : "The score orders the items; it is not a probability."));
}

function itemRow(item, rank, kind, known, top) {
  const value = known ? item.probability ?? 0 : item.score;
  const reasons = (item.contributions || []).filter(([, amount]) => amount > 0).slice(0, 3).map(([source]) => WORDS[source] || source);
  const more = [item.name ? String(item.item_id) : null, reasons.length ? `because of ${reasons.join(", ")}` : null].filter(Boolean);
  return h("tr", {},
    h("td", { class: "rank" }, String(rank)),
    h("td", {}, item.name || String(item.item_id), more.length ? h("div", { class: "small muted" }, more.join(" · ")) : null),
    h("td", { class: "number" },
      known ? (item.probability === null || item.probability === undefined ? "–" : percent(item.probability, 1)) : item.score.toFixed(3),
      s("svg", { class: `meter ${kind}`, viewBox: "0 0 60 6", width: 60, height: 6, "aria-hidden": "true" },
        s("rect", { class: "track", width: 60, height: 6, rx: 3 }),
        s("rect", { class: "fill", width: Math.max(0, Math.min(60, (60 * value) / top)), height: 6, rx: 3 }))));
}

function historyCard(person) {
  const baskets = new Map();
  for (const event of person.events) {
    const key = event.time === null ? "" : Date.parse(event.time) / 1000;
    if (!baskets.has(key)) baskets.set(key, []);
    baskets.get(key).push(event.name || String(event.item_id));
  }
  const shown = [...baskets].slice(0, BASKETS);
  return h("section", { class: "card history" },
    h("h2", {}, "History"),
    h("p", { class: "muted" }, `${plural(person.n_events, "event")} in ${plural(person.n_baskets, "basket")}, newest first${shown.length < person.n_baskets ? `; the latest ${count(shown.length)} are shown` : ""}.`),
    h("dl", { class: "baskets" }, shown.map(([time, names]) =>
      h("div", {}, h("dt", {}, time === "" ? "Without a time" : day(time)), h("dd", {}, names.join(", "))))));
}
