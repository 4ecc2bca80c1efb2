// Models: what is in service, its report, and the way back.
import { get, post } from "./api.js";
import { h, message, when } from "./dom.js";

export async function models(main, failure) {
  const outcome = h("div", {});
  await draw(await get("/v1/model"));

  async function draw(model) {
    main.replaceChildren(
      h("h1", {}, `In service: ${model.name}`),
      h("section", { class: "card" },
        h("p", {}, `${model.class} for ${model.n_users.toLocaleString()} users and ${model.n_items.toLocaleString()} items, loaded ${when(model.loaded)}.`),
        h("p", {}, `Lists end by: ${model.cutoff_description || "the learned boundary"}.`),
        model.error ? message(model.error, "The model in service was not changed.", "bad") : null,
        model.report ? h("details", {}, h("summary", {}, "How it was chosen"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Report" }, h("pre", { class: "mono" }, model.report))) : null),
      outcome,
      h("section", { class: "card" }, h("h2", {}, "Available models"), h("table", {}, h("tbody", {}, model.available.map((name) =>
        h("tr", {}, h("td", {}, name), h("td", { class: "number" }, name === model.name ? "in service" : h("button", { type: "button", class: "quiet", onclick: () => activate(name) }, `Activate ${name}`))))))),
      h("section", { class: "card" }, h("h2", {}, "Latest activations"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Latest activations" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "When"), h("th", { scope: "col" }, "Model"), h("th", { scope: "col" }, "Note"), h("th", { scope: "col" }, ""))),
        h("tbody", {}, model.activations.map((one, index) => h("tr", {}, h("td", {}, when(one.activated)), h("td", {}, one.model), h("td", {}, one.note),
          h("td", { class: "number" }, index === 0 ? "" : h("button", { type: "button", class: "quiet", onclick: () => goBack(one) }, "Go back")))))))),
    );
  }

  const activate = (name) => change({ name });
  const goBack = (one) => change({ name: one.model, activation: one.number });
  async function change(body) {
    outcome.replaceChildren(message("Loading the model. The old one answers until it is ready."));
    try {
      const model = await post("/v1/model", body);
      outcome.replaceChildren(message(`In service: ${model.name}.`));
      await draw(model);
    } catch (error) {
      outcome.replaceChildren(failure(error));
    }
  }
  return null;
}
