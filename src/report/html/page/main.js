// The page, from top to bottom.

function panel(id, build) {
  const host = element("section", { class: "panel", id });
  document.getElementById("panels").append(host);
  build(host);
  if (!host.hasChildNodes()) host.remove();
}

header(document.getElementById("about"));
selectionBar(document.getElementById("selection"));
document.getElementById("panels").hidden = false;
for (const [id, build] of Object.entries({
  steps: stagePanel, lines: linesPanel, space: spacePanel, heads: headsPanel, softmax: softmaxPanel, masks: masksPanel, leak: leakPanel,
  dropout: dropoutPanel, split: splitPanel, snippets: snippetsPanel,
})) panel(id, build);
document.addEventListener("keydown", onArrow);
window.addEventListener("hashchange", () => select(fromHash()));
// Long rows have many small weights: there the log scale tells more.
select({ query: 1, log: !report.exact, ...fromHash() });
