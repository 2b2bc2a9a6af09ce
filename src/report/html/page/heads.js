// Heads side by side, and what each of them does in numbers.

// Where heads have names the map's scores come first, of the text that is read twice; the others are of this text.
const scoreNames = () => ({
  ...(report.repeated ? Object.fromEntries(Object.entries(kindNames).map(([kind, [name]]) => [kind, [name]])) : {}),
  ...(report.kind?.recurrent ? {} : { entropy: ["entropy", "nats; 0 looks at one key, higher spreads"], distance: ["distance", "tokens, weighted mean of |query − key|"] }),
  ...(report.repeated ? {} : { first: ["first token", "mean weight on the first key, where attention sinks"], previous: ["previous token", "mean weight on the token just before"] }),
  diagonal: ["own token", "mean weight on the token itself"],
});
const mostHeads = 24;  // that are shown at once; of more those of the selected layer

const allHeads = () => blocks.flatMap((block, b) => Array.from({ length: block.heads }, (_, head) => ({
  block, b, head, scores: { ...block.scores[head], ...block.kinds?.[head] }, get step() { return block.step("weights"); }, name: headName(head, b),
})));

// A head whose layer is not open yet has its scores alone.
function headPicture({ head, step }) {
  const matrix = step.matrix(head), canvas = pixelsOf(matrix, stepScale(step, matrix));
  canvas.setAttribute("aria-hidden", "true");
  return { canvas, largest: format(rangeOf(matrix).high, 2) };
}

function headCard(shown) {
  const { b, head, name, scores } = shown, { canvas, largest } = shown.step ? headPicture(shown) : { canvas: element("span", { class: "closed" }), largest: "…" };
  return element("button", { class: "head", type: "button", "data-head": head, "data-block": b, onclick: () => select({ block: b, head }) },
    element("span", { class: "head-name" }, name), canvas,
    element("span", { class: "head-scores" }, element("span", {}, "largest ", element("b", { class: "number" }, largest)), Object.entries(scoreNames()).map(([key, [label]]) =>
      element("span", {}, `${label} `, element("b", { class: "number", "data-score": key, title: String(scores[key]) }, format(scores[key], 2))))));
}

// The small multiples as one figure: the pictures as images, names above.
function headsSvg(heads) {
  const size = 140, across = Math.min(heads.length, 6), down = Math.ceil(heads.length / across);
  const parts = heads.map(({ head, name, step }, i) => {
    const x = 20 + (size + 20) * (i % across), y = 40 + (size + 40) * Math.floor(i / across), matrix = step.matrix(head), scale = stepScale(step, matrix);
    const picture = pixelsOf(matrix, scale).toDataURL();
    return `<text x="${x}" y="${y - 8}">${xml(name)}: ${scale.kind === "row" ? "by row" : `${scale.lowText} to ${format(scale.high, 2)}`}</text><rect x="${x}" y="${y}" width="${size}" height="${size}" fill="url(#masked)"/><image x="${x}" y="${y}" width="${size}" height="${size}" preserveAspectRatio="none" image-rendering="pixelated" href="${picture}"/>`;
  });
  const width = 20 + (size + 20) * across, height = 20 + (size + 40) * down;
  return svgFile(width, height, hatchPattern, parts);
}

function headsPanel(host) {
  const heads = allHeads(), titles = scoreNames(), names = Object.keys(titles), few = heads.length <= mostHeads;
  const grid = element("div", { class: "heads", id: "heads-grid" }), scales = element("div", { class: "controls", id: "heads-controls" }), said = element("span", {});
  const shown = () => (few ? heads : heads.filter(({ b }) => b === state.block));
  let drawnFor = "";
  const draw = () => {
    const open = heads.filter(({ step }) => step), id = named(state.scale, open.length, !few && state.block);
    if (drawnFor !== id) fill(grid, shown().map(headCard)), fill(scales, scaleChooser("heads-scale"));
    drawnFor = id;
    said.textContent = { diverging: "white for 0, orange above it and purple below", row: "in each row dark for 0, bright for the row’s largest", log: "dark for the smallest, bright for the largest weight, by the logarithm" }[stepScale(open[0].step, open[0].step.matrix(open[0].head)).kind] ?? "dark for 0, bright for its largest";
    for (const card of grid.children) {
      const on = Number(card.dataset.head) === state.head && Number(card.dataset.block) === state.block;
      card.classList.toggle("on", on);
      card.setAttribute("aria-pressed", on);
    }
  };
  fill(host, lead("Each picture is one head’s weights, queries down and keys across: ", said, `. Hatched is masked. Choose a head to see it everywhere.${few ? "" : " These are the heads of the selected layer; the table has all."}`), scales, grid,
    quiet(names.filter((key) => titles[key][1]).map((key) => `${titles[key][0]}: ${titles[key][1]}`).join(". ") + `.${report.repeated ? " The others are the map’s." : ""}`),
    exports({ name: () => "heads", title: () => (few ? "All heads" : `Heads of ${layerName()}`), svg: () => headsSvg(shown().filter(({ step }) => step)), csv: () => [["head", ...names.map((key) => titles[key][0])], ...heads.map(({ name, scores }) => [name, ...names.map((key) => scores[key])])] }));
  onSelection(draw);
}
