// The page, from top to bottom.

// A panel is built once, and what that returns draws in it what is selected. A folded one is drawn when it is opened.
function panel(host, id, title, build, folded) {
  const content = element("div", {}), head = element("h2", {}, title);
  const made = folded ? element("details", { class: "panel", id, ontoggle: () => select({}) }, element("summary", {}, head), content)
    : element("section", { class: "panel", id, "aria-label": title || null }, title && head, content);
  host.append(made);
  made.draw = build(content);
  if (!content.hasChildNodes()) made.remove();
}

const [first, more] = ["first", "more"].map((id) => byId(id));
header(byId("about"));
byId("panels").hidden = false;
const labs = [];  // of a page that computes, once the library is there: [id, title, build]

// Makes a host's panels anew. What was unfolded and has an id stays so.
function renewed(host, build) {
  const unfolded = Array.from(host.querySelectorAll("details[id][open]"), ({ id }) => id);
  host.replaceChildren();
  build((...one) => panel(host, ...one));
  for (const id of unfolded) byId(id)?.setAttribute("open", "");
}
// All panels, of the numbers that are there now.
function drawPanels() {
  document.body.classList.toggle("model", severalLayers());
  renewed(first, (add) => {
    add("overview", report.repeated ? "What each head does" : "Heads", overviewPanel);
    add("steps", "Step by step", stagePanel);
    add("names", "", namesPanel);
  });
  selectionBar(byId("selection"));
  renewBelow();
}
function renewBelow() {
  drawBelow(() => renewed(more, (add) => {
    add("lines", "Who looks at whom", linesPanel);
    add("space", "Embedding space", spacePanel);
    add("heads", "Heads side by side", headsPanel, Boolean(byId("model")));  // below a model's map, where one types, they fold
    for (const lab of labs) add(...lab, severalLayers());
    add("checks", "Checks", checksPanel, severalLayers());
    add("snippets", "Take it away", snippetsPanel);
  }));
}
drawPanels();
window.addEventListener("hashchange", () => select(fromHash()));
window.addEventListener("resize", () => select({}));
window.addEventListener("beforeprint", drawnBelow);
select({ query: 1, block: report.start.layer, head: report.start.head, ...fromHash() });
openAll();
