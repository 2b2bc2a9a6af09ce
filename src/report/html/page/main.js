// The page, from top to bottom.

// A folded panel is drawn when it is opened.
function panel(host, id, title, build, folded) {
  const content = element("div", {}), head = element("h2", {}, title);
  building = folded ? element("details", { class: "panel", id, ontoggle: () => select({}) }, element("summary", {}, head), content)
    : element("section", { class: "panel", id, "aria-label": title || null }, title && head, content);
  host.append(building);
  build(content);
  if (!content.hasChildNodes()) building.remove();
}

const [first, more] = ["first", "more"].map((id) => byId(id));
header(byId("about"));
byId("panels").hidden = false;
const labs = [];  // of a page that computes: [id, title, build]
// All panels, of the numbers that are there now, but for some; those that were unfolded stay so.
function drawPanels(without = new Set()) {
  const unfolded = Array.from(document.querySelectorAll("details.panel[open]"), ({ id }) => id);
  document.body.classList.toggle("model", severalLayers());
  listeners.length = 0;
  for (const host of [first, more, byId("selection")]) host.replaceChildren();
  panel(first, "overview", report.repeated ? "What each head does" : "Heads", overviewPanel);
  panel(first, "steps", "Step by step", stagePanel);
  panel(first, "names", "", namesPanel);
  building = undefined;
  selectionBar(byId("selection"));
  panel(more, "lines", "Who looks at whom", linesPanel);
  if (!without.has("space")) panel(more, "space", "Embedding space", spacePanel);
  panel(more, "heads", "Heads side by side", headsPanel);
  for (const lab of labs) panel(more, ...lab, severalLayers());
  if (!without.has("checks")) panel(more, "checks", "Checks", checksPanel, severalLayers());
  if (!without.has("snippets")) panel(more, "snippets", "Take it away", snippetsPanel);
  for (const id of unfolded) byId(id)?.setAttribute("open", "");
}
drawPanels();
window.addEventListener("hashchange", () => select(fromHash()));
window.addEventListener("resize", () => select({}));
select({ query: 1, block: report.start.layer, head: report.start.head, ...fromHash() });
openAll();
