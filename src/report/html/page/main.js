// The page, from top to bottom.

function panel(id, build) {
  const host = element("section", { class: "panel", id });
  document.getElementById("panels").append(host);
  build(host);
  if (!host.hasChildNodes()) host.remove();
}

state.block = blocks.indexOf(openBlock());
header(document.getElementById("about"));
selectionBar(document.getElementById("selection"));
document.getElementById("panels").hidden = false;
for (const [id, build] of Object.entries({
  overview: overviewPanel, steps: stagePanel, lines: linesPanel, space: spacePanel, heads: headsPanel, softmax: softmaxPanel, masks: masksPanel, leak: leakPanel,
  dropout: dropoutPanel, split: splitPanel, checks: checksPanel, snippets: snippetsPanel,
})) panel(id, build);
document.addEventListener("keydown", onArrow);
window.addEventListener("hashchange", () => select(fromHash()));
window.addEventListener("resize", () => select({}));
select({ query: 1, block: report.start.layer, head: report.start.head, ...fromHash() });
openAll();
