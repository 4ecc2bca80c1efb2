// Trade-off: precision against the share of users who get nothing, and the chosen point put into service.
import { get, post } from "./api.js";
import { axisPercent, drawn, lines } from "./charts.js";
import { confirmed, count, field, h, message, percent, refusal } from "./dom.js";

export async function tradeoff(view) {
  const [data, { can_change: canChange }] = await Promise.all([get("/v1/tradeoff"), get("/v1/model")]);
  const canActivate = data.can_activate && canChange;
  const points = [...data.points].reverse(); // from the present lists to the fewest lists
  const head = [h("h1", { tabindex: -1 }, "Fewer lists, better lists")];
  if (!points.length) {
    view.place.replaceChildren(...head, message("No user gets a list from the model in service.", "Activate another model, or a model with another cutoff, under Models."));
    return;
  }
  const nothing = (point) => 1 - point.coverage;
  const now = points[0];
  const slider = h("input", { type: "range", min: 0, max: points.length - 1, step: 1, value: 0, "aria-describedby": "tradeoff-sentence" });
  const said = h("strong", {});
  const sentence = h("p", { id: "tradeoff-sentence", class: "lead" });
  const figures = h("dl", { class: "figures" }), outcome = h("div", {});
  const button = h("button", { type: "button", onclick: activate, disabled: !canActivate, "aria-describedby": canChange ? null : "no-tokens" }, "Put this into service");
  const chosen = () => points[Number(slider.value)];
  const chart = drawn((width) => lines(width, `Expected precision by the share of users who get nothing: ${percent(now.precision)} now, ${percent(points.at(-1).precision)} if ${percent(nothing(points.at(-1)))} get nothing`,
    "users who get nothing", points.map((one) => ({ x: nothing(one), y: one.precision })),
    { yText: axisPercent, xText: axisPercent, round: true, dots: [{ x: nothing(now), y: now.precision, kind: "now" }, { x: nothing(chosen()), y: chosen().precision, kind: "dot", text: percent(chosen().precision) }] }));
  slider.addEventListener("input", draw);
  view.place.replaceChildren(
    ...head,
    h("p", { class: "muted" }, "If the users with the least certain lists get nothing, the remaining lists are better. Move the slider to see how much."),
    h("section", { class: "card" },
      h("h2", { class: "unseen" }, "Choose a point"),
      sentence, field(["Send nothing to the least certain ", said], slider),
      h("p", { class: "muted chart-title" }, "Precision: share of shown items that users are expected to choose"), chart.place),
    h("section", { class: "card" }, h("h2", {}, "What it changes"), figures,
      h("p", { class: "help" }, `Computed for ${count(data.n_users)} users. ${data.note}`)),
    h("section", { class: "card" },
      h("h2", {}, "Put it into service"),
      h("p", {}, data.can_activate
        ? "The model stays; users whose list is too uncertain get an empty list from now on. You can go back under Models."
        : "The cutoff in service cannot leave out users. Fit the model with ExpectedF1, ExpectedNDCG or ExpectedValue to choose a point here."),
      canChange ? h("p", { class: "help" }, "This needs a token with the scope admin.") : refusal("no-tokens"), button, outcome));
  draw();

  function draw() {
    const point = chosen(), start = point === now;
    const words = `Send nothing to the least certain ${percent(nothing(point))}`;
    said.textContent = percent(nothing(point));
    slider.setAttribute("aria-valuetext", `${percent(nothing(point))} of users get nothing, precision ${percent(point.precision)}`);
    sentence.textContent = start
      ? `Now, ${percent(nothing(now))} of users get nothing. Of 100 shown items, users choose about ${count(now.precision * 100)}.`
      : `${words}: of 100 shown items, users choose about ${count(point.precision * 100)} instead of ${count(now.precision * 100)}.`;
    const row = (name, text, before) => h("div", {}, h("dt", {}, name), h("dd", {}, h("span", { class: "figure" }, text), start ? null : h("span", { class: "muted" }, ` now ${before}`)));
    figures.replaceChildren(
      row("Precision", percent(point.precision), percent(now.precision)),
      row("Users who get a list", percent(point.coverage), percent(now.coverage)),
      row("Items per list", point.items_per_list.toFixed(1), now.items_per_list.toFixed(1)),
      row("Shown items per 1,000 users", count(point.items_per_1000_users), count(now.items_per_1000_users)),
      row("Of these, chosen", count(point.relevant_per_1000_users), count(now.relevant_per_1000_users)));
    chart.again();
  }

  async function activate() {
    const point = chosen();
    if (!(await confirmed(`From now on, only the most certain ${percent(point.coverage)} of users get a list.`, "Put into service"))) return;
    button.disabled = true;
    outcome.replaceChildren(message("Loading. The present cutoff answers until the new one is ready."));
    try {
      await post("/v1/tradeoff", { coverage: point.coverage });
      outcome.replaceChildren(message(`Done: ${percent(point.coverage)} of users get a list.`, "You can go back under Models.", "good"));
      view.changed();
    } catch (error) {
      outcome.replaceChildren(view.failure(error));
    }
    button.disabled = false;
    button.focus();
  }
}
