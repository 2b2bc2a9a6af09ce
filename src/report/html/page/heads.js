// All heads side by side, and what each of them does in four numbers.

const scoreNames = {
  entropy: ["entropy", "nats; 0 looks at one key, higher spreads"], distance: ["distance", "tokens, weighted mean of |query − key|"],
  first: ["first token", "mean weight on the first key, where attention sinks"], previous: ["token before", "mean weight on the token just before"],
  diagonal: ["own token", "mean weight on the token itself"],
};

const allHeads = () => blocks.flatMap((block, b) => Array.from({ length: block.heads }, (_, head) => ({
  block, b, head, scores: block.scores[head], get step() { return block.step("weights"); },
  name: blocks.length > 1 ? `layer ${layerNumber(b)}, head ${head + 1}` : headName(head),
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
    element("span", { class: "head-scores" }, element("span", {}, "largest ", element("b", { class: "number" }, largest)), Object.entries(scoreNames).map(([key, [label]]) =>
      element("span", {}, `${label} `, element("b", { class: "number" }, format(scores[key], 2))))));
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
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="#222">${hatchPattern}<rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
}

function headsPanel(host) {
  const heads = allHeads(), names = Object.keys(scoreNames);
  const grid = element("div", { class: "heads" }), controls = element("div", { class: "controls" }), said = element("span", {});
  let drawnFor = "";
  const draw = () => {
    const open = heads.filter(({ step }) => step), id = `${state.scale} ${open.length}`;
    if (drawnFor !== id) fill(grid, heads.map(headCard)), fill(controls, scaleChooser("heads-scale"));
    drawnFor = id;
    said.textContent = { row: "in each row dark for 0, bright for the row’s largest", log: "dark for the smallest, bright for the largest weight, by the logarithm" }[stepScale(open[0].step, open[0].step.matrix(open[0].head)).kind] ?? "dark for 0, bright for its largest";
    mark();
  };
  const rows = heads.map(({ b, head, name, scores }) => element("tr", { "data-head": head, "data-block": b },
    element("th", { scope: "row" }, name), names.map((key) => element("td", { class: "number", "data-score": key, title: String(scores[key]) }, format(scores[key])))));
  const mark = () => {
    for (const node of [...grid.children, ...rows]) {
      node.classList.toggle("on", Number(node.dataset.head) === state.head && Number(node.dataset.block) === state.block);
    }
  };
  fill(host, element("h2", {}, heads.length > 1 ? `${heads.length} heads` : "The head, in numbers"),
    element("p", { class: "lead" }, "Each picture is one head’s weights, queries down and keys across: ", said, ". Hatched is masked. Choose a head to see it everywhere."), controls,
    element("div", { class: heads.length <= 3 ? "beside" : null }, grid, element("details", { open: heads.length <= 12 }, element("summary", {}, "The scores as a table"), element("div", { class: "scroll" }, element("table", { class: "plain" }, element("caption", { class: "unseen" }, "What each head does"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), names.map((key) => element("th", { scope: "col", class: "number", title: scoreNames[key][1] }, scoreNames[key][0])))),
      element("tbody", {}, rows))), element("p", { class: "quiet" }, names.map((key) => `${scoreNames[key][0]}: ${scoreNames[key][1]}`).join(". ") + "."))),
    exports({ name: () => "heads", title: () => (heads.length > 1 ? "All heads" : "The head"), svg: () => headsSvg(heads.filter(({ step }) => step)), csv: () => [["head", ...names], ...heads.map(({ name, scores }) => [name, ...names.map((key) => scores[key])])] }));
  onSelection(draw);
}
