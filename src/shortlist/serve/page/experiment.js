// Experiment: the difference between arms over time, users per arm, the verdict, and what to do with it.
import { get, post } from "./api.js";
import { band, drawn } from "./charts.js";
import { confirmed, count, day, h, message, percent, prose, refusal } from "./dom.js";

const METRICS = {
  hits: "chosen items per user",
  hits_per_item: "chosen items per shown item",
  value: "earned per user",
  f1: "F1 of the first list",
  empty: "share of users with an empty first list",
};
const VERDICTS = { better: "good", worse: "bad", "guardrail broken": "bad", "invalid split": "bad" };
const EXAMPLE = "shortlist experiment start shop.shortlist --name spring --arm ten:share=0.5,N=10 --arm dynamic:share=0.5";
const number = (value) => Number(value.toPrecision(3)).toString();

export async function experiment(view) {
  const outcome = h("div", {});
  draw(await get("/v1/experiment"));

  function draw(data) {
    if (data.name === null) {
      view.place.replaceChildren(
        h("h1", { tabindex: -1 }, "No experiment yet"),
        h("p", {}, "An experiment gives one part of the users other lists than the rest, and says which part does better. You may look at it every day and stop when it is decided."),
        h("section", { class: "card" }, h("h2", {}, "Start one"),
          h("p", {}, ...prose("Ten items for everyone against lists of individual length, on half of the users each:")),
          h("pre", { class: "mono" }, EXAMPLE),
          h("p", { class: "help" }, ...prose("`POST /v1/experiment` does the same; `shortlist experiment plan` says how long it will take."))));
      return;
    }
    const report = data.report, verdict = report ? report.verdict : "not yet";
    const locked = data.can_change ? {} : { disabled: true, "aria-describedby": "no-tokens" };
    const plain = data.metric === "hits"; // which has a column anyway
    const means = new Map((report ? report.arms : []).map((arm) => [arm.arm, arm]));
    view.place.replaceChildren(
      h("h1", { tabindex: -1 }, `Experiment ${data.name}: ${verdict}`),
      h("p", { class: "muted" }, `${data.ended === null ? "Running since" : `Ended ${day(data.ended)}, started`} ${day(data.started)}. The outcome of a user counts ${number(data.window_days)} days after the first list: ${METRICS[data.metric]}.`),
      outcome,
      message(data.summary, verdict === "not yet" ? "You may look every day: the error does not grow with the number of looks." : "", VERDICTS[verdict] || ""),
      h("div", {}, report ? chartsOf(data, report) : []),
      h("section", { class: "card" }, h("h2", {}, "Arms"),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Arms" },
          h("table", {},
            h("caption", { class: "unseen" }, "Arms, their users and what they did"),
            h("thead", {}, h("tr", {}, ["Arm", "Lists", "Share", "Users", "Complete", "Shown per user", "Chosen per user", ...(plain ? [] : [METRICS[data.metric]])].map((name) => h("th", { scope: "col" }, name)))),
            h("tbody", {}, data.arms.map((arm) => h("tr", {},
              h("th", { scope: "row" }, arm.name), h("td", {}, arm.description), h("td", {}, percent(arm.share)), h("td", {}, count(arm.users)),
              h("td", {}, count(arm.complete)), h("td", {}, arm.shown === null ? "–" : number(arm.shown)), h("td", {}, arm.hits === null ? "–" : number(arm.hits)),
              plain ? null : h("td", {}, means.has(arm.name) ? number(means.get(arm.name)[data.metric]) : "–")))))),
        h("p", { class: "help" }, report ? `Users are split as requested, as far as the counts tell: evidence against it ${number(report.split_e_value)} to 1; above 1,000 there is no verdict.` : "Users count when the days after their first list have passed.")),
      report ? guardrails(data, report) : "",
      h("section", { class: "card" }, h("h2", {}, data.ended === null ? "End it" : "Put an arm into service"),
        h("p", {}, "Stopping gives everyone the lists of the model in service again. Shipping puts the model of an arm into service; an arm with another length or cutoff is none."),
        data.can_change ? h("p", { class: "help" }, "This needs a token with the scope admin.") : refusal("no-tokens"),
        h("div", { class: "row" },
          data.ended === null ? h("button", { type: "button", class: "quiet", ...locked, onclick: () => stop(null) }, "Stop") : null,
          data.arms.filter((arm) => arm.can_ship).map((arm) => h("button", { type: "button", class: report && report.winner === arm.name ? "" : "quiet", ...locked, onclick: () => stop(arm.name) }, `Ship ${arm.name}`)))));

    async function stop(ship) {
      const question = ship === null ? `Stop the experiment ${data.name}?` : `Stop the experiment ${data.name} and give everyone the lists of ${ship}?`;
      if (!(await confirmed(question, ship === null ? "Stop" : "Ship"))) return;
      try {
        const changed = await post("/v1/experiment/stop", { name: data.name, ship });
        outcome.replaceChildren(message(ship === null ? "Stopped." : `Everyone gets the lists of ${ship}.`, "", "good"));
        view.changed();
        if (!view.isOver()) draw(changed);
      } catch (error) {
        outcome.replaceChildren(view.failure(error));
      }
    }
  }
}

function chartsOf(data, report) {
  return data.arms.slice(1).map((arm) => {
    const looks = report.looks.filter((look) => look.arm === arm.name && look.low !== null);
    if (!looks.length) return "";
    const last = looks.at(-1);
    const label = `Difference of ${arm.name} to ${report.control}: ${number(last.difference)}, between ${number(last.low)} and ${number(last.high)} after ${looks.length} looks`;
    return h("section", { class: "card" }, h("h2", {}, `${arm.name} minus ${report.control}`),
      h("p", { class: "muted chart-title" }, `${METRICS[data.metric]}: the line is the measured difference; in ${percent(report.confidence)} of experiments the band contains the true one at every look`),
      drawn((width) => band(width, label, "day of the experiment", looks.map((look) => ({ x: look.look, y: look.difference, low: look.low, high: look.high })), number)).place);
  });
}

function guardrails(data, report) {
  const rows = report.differences.filter((row) => row.metric !== data.metric);
  if (!rows.length) return "";
  return h("section", { class: "card" }, h("h2", {}, "Guardrails"),
    h("ul", { class: "rows" }, rows.map((row) => h("li", {}, h("span", {}, `${row.arm}, ${METRICS[row.metric]}: ${row.verdict}`),
      h("span", { class: "muted" }, row.low === null ? "" : `between ${number(row.low)} and ${number(row.high)}`)))));
}
