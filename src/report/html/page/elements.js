// Elements of the page, and the controls that panels are made of.

const svgTags = new Set("svg g line path circle rect text polyline title image defs marker pattern".split(" "));

// element("td", { class: ["n", on && "on"], onclick: f }, "text", child…): texts are text, never markup.
function element(tag, attributes = {}, ...children) {
  const made = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
  }
  return fill(made, children);
}
// Gives a host other children. Of what folds and has an id, that stays open which was open before.
function fill(host, ...children) {
  const unfolded = Array.from(host.querySelectorAll("details[id][open]"), ({ id }) => id);
  host.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const id of unfolded) byId(id)?.setAttribute("open", "");
  return host;
}
const byId = (id) => document.getElementById(id);
// A token in running text, safe from right-to-left marks beside it.
const token = (text, most) => element("bdi", { class: "token", title: text.slice(0, 300) }, word(text, most));

// ---- tables --------------------------------------------------------------------------
const unseen = (caption) => element("caption", { class: "unseen" }, caption);
const namedRow = (attributes, name, ...cells) => element("tr", attributes, element("th", { scope: "row" }, name), cells);
// The head has the columns' names, or cells.
const columnHead = (one) => (one instanceof HTMLTableCellElement ? one : element("th", { scope: "col" }, one));
const table = (attributes, caption, head, rows) =>
  element("table", attributes, caption, element("thead", {}, element("tr", {}, head.map(columnHead))), element("tbody", {}, rows));

// ---- controls ------------------------------------------------------------------------
const lead = (...text) => element("p", { class: "lead" }, text);
const quiet = (...text) => element("p", { class: "quiet" }, text);
const controls = (...parts) => element("div", { class: "controls" }, parts);
const button = (id, text, onclick, more) => element("button", { type: "button", id, onclick, ...more }, text);
const input = (id, type, attributes) => element("input", { id, type, ...attributes });
const field = (label, ...inputs) => element("label", { class: "field" }, label, inputs);
const check = (id, label, attributes) => element("label", { class: "check" }, input(id, "checkbox", attributes), label);
// A list to choose from, of [value, text].
const choice = (attributes, options, chosen) =>
  element("select", attributes, options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
