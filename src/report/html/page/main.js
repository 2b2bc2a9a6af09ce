// The page, from top to bottom.

// A panel is built once, and what that returns draws in it what is selected. A folded one is drawn when it is opened.
function panel(id, title, build, folded) {
  const content = element("div", {}), head = element("h2", {}, title);
  const made = folded ? element("details", { class: "panel", id, ontoggle: () => select({}) }, element("summary", {}, head), content)
    : element("section", { class: "panel", id, "aria-label": title || null }, title && head, content);
  made.draw = build(content);
  return content.hasChildNodes() && made;
}

header(byId("about"));
byId("panels").hidden = false;
const labs = [];  // of a page that computes, once the library is there: [id, title, build]

// All panels, of the numbers that are there now, with what is selected in them.
function drawPanels(selection = {}) {
  const map = severalLayers() || report.repeated > 0;
  document.body.classList.toggle("model", severalLayers());
  fill(byId("first"), map && panel("overview", report.repeated ? "What each head does" : "Heads", overviewPanel),
    panel("steps", "Step by step", stagePanel), map && panel("names", "", namesPanel));
  selectionBar(byId("selection"));
  renewBelow();
  select(selection);
}
function renewBelow() {
  const folds = Boolean(byId("model"));  // Below a model's map, where one types, heads fold.
  drawBelow(() => fill(byId("more"), panel("lines", "Who looks at whom", linesPanel),
    panel("space", "Embedding space", spacePanel), panel("heads", "Heads side by side", headsPanel, folds),
    labs.map((lab) => panel(...lab, severalLayers())),
    panel("checks", "Checks", checksPanel, severalLayers()), panel("snippets", "Take it away", snippetsPanel)));
}
drawPanels({ query: 1, block: report.start.layer, head: report.start.head, ...fromHash() });
window.addEventListener("hashchange", () => select(fromHash()));
window.addEventListener("resize", () => select({}));
window.addEventListener("beforeprint", drawnBelow);
openAll();
