// All heads of all layers in one picture: each is named by where it looks while the model reads the text a second time.

const kindNames = {
  previous: ["previous token", "the token just before", 6], same: ["same token", "an earlier token that is the query’s own", 2],
  induction: ["induction", "the token that came after an earlier one like the query’s own: what a text that repeats itself says next", 1],
  first: ["first token", "the first token of all, where weight goes that has no better place", 5],
};
const kindLimit = 0.4;  // of a query's weight, on average

const strongest = (kinds) => Object.keys(kindNames).reduce((most, kind) => (kinds[kind] > kinds[most] ? kind : most), "previous");
// "induction 0.83", or the largest of its scores where it is below the limit.
function kindOf(kinds) {
  const kind = strongest(kinds), score = kinds[kind], named = score >= kindLimit;
  return { kind, score, named, text: named ? `${kindNames[kind][0]} ${format(score, 2)}` : `no name: at most ${format(score, 2)} (${kindNames[kind][0]})` };
}
const kindColour = (kind) => seriesOf(kindNames[kind][2]);

function overviewSvg() {
  const cell = 18, left = 70, top = 60, across = Math.max(...blocks.map((block) => block.heads)), parts = [];
  blocks.forEach((block, b) => {
    const y = top + cell * b;
    parts.push(`<text x="${left - 8}" y="${y + 13}" text-anchor="end">${layerNumber(b)}</text>`);
    block.kinds.forEach((kinds, head) => {
      const { kind, score, named, text } = kindOf(kinds);
      parts.push(`<rect x="${left + cell * head}" y="${y}" width="${cell - 2}" height="${cell - 2}" rx="2" fill="${named ? kindColour(kind) : "#e4e4e4"}"${named ? ` fill-opacity="${score.toFixed(2)}"` : ""}><title>layer ${layerNumber(b)}, head ${head + 1}: ${text}</title></rect>`);
    });
  });
  const width = left + Math.max(cell * across, 420) + 20, below = top + cell * blocks.length + 24;
  Object.entries(kindNames).forEach(([kind, [name]], i) => parts.push(`<rect x="${left + 110 * i}" y="${below}" width="12" height="12" fill="${kindColour(kind)}"/><text x="${left + 110 * i + 17}" y="${below + 10}">${name}</text>`));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${below + 30}" viewBox="0 0 ${width} ${below + 30}" font-family="sans-serif" font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/><text x="${left}" y="24">What each head does: layers down, heads across</text><text x="${left}" y="44">${xml(word(report.title, 70))}</text>${parts.join("")}</svg>`;
}

function overviewPanel(host) {
  if (!report.repeated) return;
  const names = Object.keys(kindNames), found = blocks.flatMap((block) => block.kinds.map((kinds) => kindOf(kinds)));
  const cells = [], across = Math.max(...blocks.map((block) => block.heads));
  const rows = blocks.map((block, b) => element("tr", {}, element("th", { scope: "row" }, String(layerNumber(b))), block.kinds.map((kinds, head) => {
    const { kind, score, named, text } = kindOf(kinds), label = `layer ${layerNumber(b)}, head ${head + 1}: ${text}`;
    const button = element("button", { type: "button", title: label, "aria-label": label, "data-block": b, "data-head": head, "data-kind": named ? kind : null, onclick: () => select({ block: b, head }) });
    if (named) Object.assign(button.style, { backgroundColor: `color-mix(in srgb, ${kindColour(kind)} ${Math.round(100 * score)}%, var(--card))` });
    cells.push(button);
    return element("td", {}, button);
  })));
  const said = element("p", { class: "quiet", "aria-live": "polite" });
  const legendItem = (kind) => {
    const swatch = element("i", {}), count = found.filter((one) => one.named && one.kind === kind).length;
    swatch.style.backgroundColor = kindColour(kind);
    return element("li", {}, swatch, element("span", {}, element("strong", {}, kindNames[kind][0]), ` (${count}): ${kindNames[kind][1]}.`));
  };
  const unnamed = found.filter((one) => !one.named).length;
  fill(host, element("h2", {}, "What each head does"),
    element("p", { class: "lead" }, `Layers go down and heads across. A head has a colour where ${format(kindLimit, 1)} or more of its weight lies on one kind of token, and the colour is stronger the more it is. Choose a head to see it everywhere.`),
    element("div", { class: "overview" }, element("div", { class: "scroll" }, element("table", {}, element("caption", { class: "unseen" }, "What each head does"),
      element("thead", {}, element("tr", {}, element("td", {}), numbers(across).map((n) => element("th", { scope: "col" }, n)))), element("tbody", {}, rows))),
      element("div", {}, element("ul", { class: "kinds" }, names.map(legendItem), element("li", {}, element("i", {}), element("span", {}, element("strong", {}, "no name"), ` (${unnamed}): none of these reaches ${format(kindLimit, 1)}.`))), said,
        element("p", { class: "quiet" }, `How it was computed: the model read the first ${report.repeated} tokens of the text twice, one after the other. A score is the mean, over the ${report.repeated} queries of the second reading, of a head’s weight on tokens of that kind. Each key counts once: as the first token, else as the previous, else as the same, else as induction.`))),
    exports({ name: () => "overview", title: () => "What each head does", svg: overviewSvg,
      csv: () => [["layer", "head", ...names], ...blocks.flatMap((block, b) => block.kinds.map((kinds, head) => [layerNumber(b), head + 1, ...names.map((kind) => kinds[kind])]))] }));
  onSelection(() => {
    for (const button of cells) button.classList.toggle("on", Number(button.dataset.block) === state.block && Number(button.dataset.head) === state.head);
    const kinds = blocks[state.block].kinds[state.head];
    said.textContent = `Layer ${layerNumber(state.block)}, head ${state.head + 1}: ${names.map((kind) => `${kindNames[kind][0]} ${format(kinds[kind], 2)}`).join(", ")}.`;
  });
}
