// The API, rendered from /openapi.json.
import { h, prose } from "./dom.js";

const main = document.getElementById("main");
const schema = await (await fetch("/openapi.json")).json();

const resolve = (one) => (one && one.$ref ? schema.components.schemas[one.$ref.split("/").pop()] : one) || {};

function typeOf(given) {
  const one = resolve(given);
  if (one.anyOf) return [...new Set(one.anyOf.map(typeOf))].filter((name) => name !== "null").join(" or ");
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (one.const !== undefined) return JSON.stringify(one.const);
  if (one.type === "array" && one.items) return `list of ${typeOf(one.items)}`;
  return one.title && one.type === "object" && one.properties ? one.title : one.type || "any";
}

function fields(given) {
  const one = resolve(given);
  const needed = new Set(one.required || []);
  const rows = Object.entries(one.properties || {}).map(([name, value]) =>
    h("div", {}, h("dt", {}, h("code", {}, name), h("span", { class: "small muted" }, ` ${typeOf(value)}`)),
      h("dd", {}, needed.has(name) ? "Required. " : "", ...prose(value.description || ""))));
  return rows.length ? h("dl", { class: "facts" }, rows) : null;
}

const sections = [], links = [];
for (const [path, methods] of Object.entries(schema.paths)) {
  for (const [method, one] of Object.entries(methods)) {
    const body = one.requestBody?.content?.["application/json"]?.schema;
    const answer = one.responses?.["200"]?.content?.["application/json"]?.schema;
    const name = `${method.toUpperCase()} ${path}`, id = one.operationId;
    const shown = answer ? fields(answer) : null;
    links.push(h("li", {}, h("a", { href: `#${id}` }, name)));
    sections.push(h("section", { class: "card", id },
      h("h2", {}, h("code", {}, name)),
      h("p", {}, ...prose(one.description || one.summary || "")),
      body ? h("h3", {}, "Body") : null, body ? fields(body) : null,
      shown ? h("details", {}, h("summary", {}, "Answer"), shown) : null));
  }
}
main.replaceChildren(
  h("h1", {}, "The API"),
  h("p", { class: "muted" }, `shortlist ${schema.info.version}. Send a token as `, h("code", {}, "Authorization: Bearer TOKEN"), ". Every error has the fields error, rule and hint."),
  h("nav", { "aria-label": "Requests", class: "contents" }, h("ul", {}, links)),
  ...sections);
