// Elements of the page, and the controls that panels are made of.

// element("td", { class: "n", onclick: f }, "text", child…): texts are text, never markup.
function element(tag, attributes = {}, ...children) {
  const svg = element.svgTags.has(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}
element.svgTags = new Set(["svg", "g", "line", "path", "circle", "rect", "text", "polyline", "title", "image", "defs",
                           "marker", "polygon"]);
// A list to choose from, of [value, text].
const choice = (attributes, options, chosen) => element("select", attributes, options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
const table = (attributes, caption, head, rows) => element("table", attributes, caption, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
function fill(host, ...children) { host.replaceChildren(...children.flat(Infinity).filter(Boolean)); }
// A token in running text, safe from right-to-left marks beside it.
const token = (text, most) => element("bdi", { class: "token", title: text.slice(0, 300) }, word(text, most));

const byId = (id) => document.getElementById(id);

// ---- controls ------------------------------------------------------------------------
const lead = (...text) => element("p", { class: "lead" }, text);
const unseen = (caption) => element("caption", { class: "unseen" }, caption);
const quiet = (...text) => element("p", { class: "quiet" }, text);
const controls = (...parts) => element("div", { class: "controls" }, parts);
const button = (id, text, onclick, more) => element("button", { type: "button", id, onclick, ...more }, text);
const field = (label, ...input) => element("label", { class: "field" }, label, input);
const numberField = (id, label, attributes) => field(label, element("input", { id, type: "number", ...attributes }));
const check = (label, attributes) => element("label", { class: "check" }, element("input", { type: "checkbox", ...attributes }), label);
