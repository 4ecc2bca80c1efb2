// The API, rendered from /openapi.json.
import { h } from "./dom.js";

const main = document.getElementById("main");
const schema = await (await fetch("/openapi.json")).json();

const resolve = (one) => (one && one.$ref ? schema.components.schemas[one.$ref.split("/").pop()] : one);

function typeOf(given) {
  const one = resolve(given) || {};
  if (one.anyOf) return one.anyOf.map(typeOf).join(" or ");
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (one.const !== undefined) return JSON.stringify(one.const);
  if (one.type === "array") return `list of ${typeOf(one.items || {})}`;
  return one.title && one.type === "object" ? one.title : one.type || "any";
}

function fields(given) {
  const one = resolve(given) || {};
  const needed = new Set(one.required || []);
  const rows = Object.entries(one.properties || {}).map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, typeOf(value)), h("td", {}, [needed.has(name) ? "required." : null, value.description || ""].filter(Boolean).join(" "))));
  return rows.length ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Fields" }, h("table", {}, h("tbody", {}, rows))) : null;
}

const sections = [];
for (const [path, methods] of Object.entries(schema.paths)) {
  for (const [method, one] of Object.entries(methods)) {
    const body = one.requestBody?.content?.["application/json"]?.schema;
    const answer = one.responses?.["200"]?.content?.["application/json"]?.schema;
    sections.push(h("section", { class: "card" },
      h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
      h("p", {}, one.description || one.summary || ""),
      body ? h("h3", {}, "Body") : null, body ? fields(body) : null,
      answer ? h("details", {}, h("summary", {}, "Answer"), fields(answer)) : null));
  }
}
main.replaceChildren(
  h("h1", {}, `shortlist ${schema.info.version}`),
  h("p", { class: "muted" }, "Send tokens as Authorization: Bearer …. Every error has the fields error, rule and hint."),
  ...sections);
