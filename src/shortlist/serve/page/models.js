// Models: what is in service, its report, and the way back.
import { get, post } from "./api.js";
import { confirmed, count, h, message, moment, prose, refusal } from "./dom.js";

const CUTOFFS = {
  ExpectedF1: "Each list ends where one more item would lower its expected F1, the balance of precision and recall.",
  ExpectedNDCG: "Each list ends where one more item would lower its expected NDCG, which counts hits near the top more.",
  ExpectedValue: "Each list ends where one more item would cost more than it is expected to bring.",
  Threshold: "Each list ends where the next item scores below a threshold.",
  Guarantee: "Each list ends where the guaranteed precision would be broken.",
  FixedN: "All lists have the same length.",
  boundary: "Each list ends where items score below the boundary that the model learned for the user.",
};

export async function models(view) {
  const outcome = h("div", {});
  draw(await get("/v1/model"));

  function draw(model) {
    const row = (name, ...content) => h("div", {}, h("dt", {}, name), h("dd", {}, ...content));
    const latest = model.activations[0];
    const locked = model.can_change ? {} : { disabled: true, "aria-describedby": "no-tokens" };
    view.place.replaceChildren(
      h("h1", { tabindex: -1 }, `In service: ${model.name}`),
      h("p", { class: "muted" }, "The model that answers now, how it was chosen, and how to go back to an earlier one."),
      outcome,
      model.error ? message(model.error, "The model in service was not changed.", "bad") : "",
      h("section", { class: "card" }, h("h2", {}, "The model"),
        h("dl", { class: "facts" },
          row("Activated", latest ? `${moment(latest.activated)}, ${latest.note}` : "–"),
          row("Loaded into memory", moment(model.loaded)),
          row("Kind", model.class),
          row("Knows", `${count(model.n_users)} users and ${count(model.n_items)} items`),
          row("Where lists end", CUTOFFS[model.cutoff] || model.cutoff, model.cutoff_description ? h("div", { class: "small muted mono" }, model.cutoff_description) : null))),
      h("section", { class: "card" }, h("h2", {}, "Report of the file"),
        model.report ? h("pre", { class: "mono" }, model.report) : h("p", { class: "muted" }, ...prose("The file holds no report. Models that `shortlist fit` or `sl.fit` chose have one."))),
      h("section", { class: "card" }, h("h2", {}, "Models in the folder"), model.can_change ? null : refusal("no-tokens"),
        h("ul", { class: "rows" }, model.available.map((name) =>
          h("li", {}, h("span", {}, name), name === model.name ? h("span", { class: "muted" }, "in service")
            : h("button", { type: "button", class: "quiet", ...locked, "aria-label": `Activate ${name}`, onclick: () => change({ name }, `Serve the model ${name}?`, "Activate") }, "Activate"))))),
      h("section", { class: "card" }, h("h2", {}, "Latest activations"),
        h("ul", { class: "rows" }, model.activations.map((one, index) =>
          h("li", {}, h("span", {}, `${one.model} `, h("span", { class: "muted" }, `${moment(one.activated)}, ${one.note}`)),
            index === 0 ? h("span", { class: "muted" }, "in service")
              : h("button", { type: "button", class: "quiet", ...locked, "aria-label": `Roll back to ${one.model} of ${moment(one.activated)}`, onclick: () => change({ name: one.model, activation: one.number }, `Go back to the model ${one.model} as it was activated on ${moment(one.activated)}, ${one.note}?`, "Roll back") }, "Roll back"))))));
  }

  async function change(body, question, yes) {
    if (!(await confirmed(`${question} The present one answers until the other is ready.`, yes))) return;
    outcome.replaceChildren(message("Loading the model. The present one answers until it is ready."));
    try {
      const model = await post("/v1/model", body);
      outcome.replaceChildren(message(`In service: ${model.name}.`, "", "good"));
      view.changed();
      if (!view.isOver()) draw(model);
    } catch (error) {
      outcome.replaceChildren(view.failure(error));
    }
    if (!view.isOver()) view.place.querySelector("h1").focus();
  }
}
