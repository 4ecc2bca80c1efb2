// Trade-off: precision against coverage, with a slider, and the chosen point put into service.
import { get, post } from "./api.js";
import { lines } from "./charts.js";
import { field, h, message, percent } from "./dom.js";

export async function tradeoff(main, failure) {
  const data = await get("/v1/tradeoff");
  const points = data.points;
  if (!points.length) {
    main.replaceChildren(h("h1", {}, "Trade-off"), message("The model recommends nothing to anybody.", "Choose another cutoff."));
    return null;
  }
  const last = points.length - 1;
  const slider = h("input", { type: "range", min: 0, max: last, step: 1, value: last, "aria-describedby": "tradeoff-sentence" });
  const sentence = h("p", { id: "tradeoff-sentence", "aria-live": "polite" });
  const chart = h("div", {}), figures = h("div", { class: "grid" }), outcome = h("div", {});
  const button = h("button", { type: "button", onclick: activate }, "Use this point");
  slider.addEventListener("input", draw);
  main.replaceChildren(
    h("h1", {}, "Fewer lists, better lists"),
    h("p", { class: "muted" }, `How precision changes if the users with the least certain lists get nothing. ${data.note}`),
    h("section", { class: "card" }, chart, field("Share of users who get a list", slider), sentence),
    figures,
    h("section", { class: "card" },
      h("h2", {}, "Put it into service"),
      h("p", { class: "muted" }, data.can_activate ? "The model stays; its cutoff gets a floor. Needs a token with the scope admin. You can go back under Models." : "The cutoff in service cannot be given a coverage."),
      button, outcome),
  );
  button.disabled = !data.can_activate;
  draw();

  function draw() {
    const point = points[Number(slider.value)], whole = points[last];
    slider.setAttribute("aria-valuetext", `${percent(point.coverage)} of users`);
    chart.replaceChildren(lines("Expected precision by share of users who get a list", "share of users who get a list",
      points.map((one) => ({ x: one.coverage, y: one.precision })),
      { yText: (value) => percent(value), xText: (value) => percent(value), dot: { x: point.coverage, y: point.precision } }));
    sentence.textContent = Number(slider.value) === last
      ? `Everybody with a list keeps it: of 100 shown items, about ${(point.precision * 100).toFixed(0)} are relevant.`
      : `Send nothing to the least certain ${percent(1 - point.coverage)}: of 100 shown items, about ${(point.precision * 100).toFixed(0)} instead of ${(whole.precision * 100).toFixed(0)} are relevant.`;
    figures.replaceChildren(
      figure(percent(point.precision), "expected precision of a list"),
      figure(percent(point.coverage), "of users get a list"),
      figure(point.items_per_list.toFixed(1), "items per list"),
      figure(point.relevant_per_1000_users.toFixed(0), `relevant items per 1,000 users, of ${point.items_per_1000_users.toFixed(0)} shown`));
  }

  async function activate() {
    button.disabled = true;
    try {
      const answer = await post("/v1/tradeoff", { coverage: points[Number(slider.value)].coverage });
      outcome.replaceChildren(message(`In service: ${answer.cutoff_description}.`));
    } catch (error) {
      outcome.replaceChildren(failure(error));
    }
    button.disabled = false;
  }
  return null;
}

const figure = (value, text) => h("section", { class: "card" }, h("div", { class: "figure" }, value), h("p", { class: "muted" }, text));
