// Look up: a user's history, the list, the line where it ends, and what was withheld.
import { get, post } from "./api.js";
import { field, h, message, percent, when } from "./dom.js";

const WITHHELD = 8;

export async function lookup(main, failure) {
  const user = h("input", { name: "user", autocomplete: "off", required: true, placeholder: "user id", value: decodeURIComponent(location.hash.split("/")[1] || "") });
  const candidates = h("input", { name: "candidates", autocomplete: "off", placeholder: "all items" });
  const maximum = h("input", { type: "number", min: 0, max: 1000, placeholder: "none" });
  const first = cutoffSelect("auto"), second = cutoffSelect("");
  const result = h("div", { "aria-live": "polite" });
  const form = h(
    "form",
    { class: "card", onsubmit: (event) => { event.preventDefault(); load(); } },
    h("div", { class: "row" },
      field("User id", user),
      field("Only these items (ids, separated by commas)", candidates),
      field("Maximum length", maximum),
      field("List ends by", first.element),
      field("Compare with", second.element),
      h("button", {}, "Show lists")),
  );
  main.replaceChildren(
    h("h1", {}, "Look up a user"),
    h("p", { class: "muted" }, "What the user did, what is recommended now, where the list ends, and what was left out."),
    form, result,
  );
  if (user.value) await load();

  async function load() {
    const id = user.value.trim();
    if (!id) return;
    result.replaceChildren(h("p", { class: "muted" }, "Loading …"));
    try {
      const person = await get(`/v1/users/${encodeURIComponent(id)}`).catch((error) => { if (error.status === 404) return null; throw error; });
      const base = { users: [person ? person.user_id : id], withheld: WITHHELD, explain: true };
      const ids = candidates.value.split(",").map((one) => one.trim()).filter(Boolean);
      if (ids.length) base.candidates = ids;
      if (maximum.value !== "") base.max_items = Number(maximum.value);
      const choices = [first.request(), second.request()].filter(Boolean);
      const answers = await Promise.all(choices.map((choice) => post("/v1/recommend", { ...base, ...choice })));
      result.replaceChildren(
        h("div", { class: "grid" }, answers.map((answer) => listCard(answer.lists[0], answer)), historyCard(person, id)),
      );
    } catch (error) {
      result.replaceChildren(failure(error));
    }
  }
}

function cutoffSelect(initial) {
  const select = h("select", {},
    initial === "" ? h("option", { value: "" }, "nothing") : null,
    h("option", { value: "auto" }, "the saved cutoff"),
    h("option", { value: "boundary" }, "the learned boundary"),
    h("option", { value: "5" }, "5 items for everyone"),
    h("option", { value: "10" }, "10 items for everyone"),
    h("option", { value: "20" }, "20 items for everyone"));
  select.value = initial;
  const request = () => {
    if (select.value === "") return null;
    return /^\d+$/.test(select.value) ? { N: Number(select.value) } : { cutoff: select.value };
  };
  return { element: select, request };
}

function listCard(list, answer) {
  const n = list.items.length;
  const title = n === 0 ? "Nothing is recommended" : `${n} item${n === 1 ? "" : "s"} recommended`;
  const rows = list.items.map((item, index) => itemRow(item, index + 1, ""));
  rows.push(h("tr", { class: "end" }, h("td", { colspan: 4 }, `The list ends here: ${list.explanation || list.reason || ""}`)));
  rows.push(...(list.withheld || []).map((item) => itemRow(item, "", "withheld")));
  return h("section", { class: "card" },
    h("h2", {}, title),
    h("p", { class: "muted" }, `Cutoff: ${answer.cutoff}. Model: ${answer.model}.`),
    answer.notes.map((note) => message(note)),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "List" },
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), h("th", { scope: "col" }, "Item"), h("th", { scope: "col", class: "number" }, "Probability"), h("th", { scope: "col", class: "number" }, "Score"))),
        h("tbody", {}, rows))));
}

function itemRow(item, rank, kind) {
  const because = (item.contributions || []).map(([source, amount]) => `${source} ${amount >= 0 ? "+" : "−"}${Math.abs(amount).toFixed(2)}`).join(", ");
  return h("tr", { class: kind },
    h("td", { class: "number" }, String(rank)),
    h("td", {}, item.name || String(item.item_id), item.name ? h("div", { class: "muted" }, String(item.item_id)) : null, because ? h("div", { class: "muted" }, because) : null),
    h("td", { class: "number" }, item.probability === null || item.probability === undefined ? "–" : percent(item.probability, 1)),
    h("td", { class: "number" }, item.score.toFixed(3)));
}

function historyCard(person, id) {
  if (!person) return h("section", { class: "card" }, h("h2", {}, "History"), message(`The model does not know the user ${id}.`, "Send events of this user, or pass a history in the request."));
  const baskets = new Map();
  for (const event of person.events) {
    const key = event.time === null ? "" : event.time / 1e6;
    if (!baskets.has(key)) baskets.set(key, []);
    baskets.get(key).push(event.name || String(event.item_id));
  }
  return h("section", { class: "card" },
    h("h2", {}, "History"),
    h("p", { class: "muted" }, `${person.n_events} events in ${person.n_baskets} baskets, newest first.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "History" },
      h("table", {}, h("tbody", {}, [...baskets].slice(0, 20).map(([time, names]) =>
        h("tr", {}, h("th", { scope: "row" }, time === "" ? "" : when(time)), h("td", {}, names.join(", "))))))));
}
