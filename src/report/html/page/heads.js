// All heads side by side, and what each of them does in four numbers.

const scoreNames = {
  entropy: ["entropy", "nats; 0 looks at one key, higher spreads"], distance: ["distance", "tokens, weighted mean of |query − key|"],
  first: ["first token", "mean weight on the first key, where attention sinks"], diagonal: ["diagonal", "mean weight on the word itself"],
};

const allHeads = () => blocks.flatMap((block, b) => Array.from({ length: block.heads }, (_, head) => ({
  block, b, head, scores: block.scores[head], step: block.step("weights"),
  name: blocks.length > 1 ? `${block.label || `layer ${b + 1}`}, head ${head + 1}` : headName(head),
})));

function headCard({ b, head, name, scores, step }, log) {
  const matrix = step.matrix(head), range = rangeOf(matrix.values);
  const canvas = pixelsOf(matrix, scaleOf({ ...range, low: 0, high: Math.max(range.high, 1e-12) }, { log }));
  canvas.setAttribute("aria-hidden", "true");
  return element("button", { class: "head", type: "button", "data-head": head, "data-block": b, onclick: () => select({ block: b, head }) },
    element("span", { class: "head-name" }, name), canvas,
    element("span", { class: "head-scores" }, element("span", {}, "largest ", element("b", { class: "number" }, format(range.high, 2))), Object.entries(scoreNames).map(([key, [label]]) =>
      element("span", {}, `${label} `, element("b", { class: "number" }, format(scores[key], 2))))));
}

// The small multiples as one figure: the pictures as images, names above.
function headsSvg(heads) {
  const size = 140, across = Math.min(heads.length, 6), down = Math.ceil(heads.length / across);
  const parts = heads.map(({ head, name, step }, i) => {
    const x = 20 + (size + 20) * (i % across), y = 40 + (size + 40) * Math.floor(i / across), matrix = step.matrix(head), range = rangeOf(matrix.values);
    const picture = pixelsOf(matrix, scaleOf({ ...range, low: 0 })).toDataURL();
    return `<text x="${x}" y="${y - 8}">${xml(name)}: 0 to ${format(range.high, 2)}</text><image x="${x}" y="${y}" width="${size}" height="${size}" preserveAspectRatio="none" image-rendering="pixelated" href="${picture}"/>`;
  });
  const width = 20 + (size + 20) * across, height = 20 + (size + 40) * down;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
}

function headsPanel(host) {
  const heads = allHeads(), names = Object.keys(scoreNames);
  const grid = element("div", { class: "heads" }), log = element("input", { type: "checkbox", id: "heads-log", checked: !report.exact });
  const draw = () => { fill(grid, heads.map((head) => headCard(head, log.checked))); mark(); };
  const rows = heads.map(({ b, head, name, scores }) => element("tr", { "data-head": head, "data-block": b },
    element("th", { scope: "row" }, name), names.map((key) => element("td", { class: "number", "data-score": key, title: String(scores[key]) }, format(scores[key])))));
  const mark = () => {
    for (const node of [...grid.children, ...rows]) {
      node.classList.toggle("on", Number(node.dataset.head) === state.head && Number(node.dataset.block) === state.block);
    }
  };
  log.addEventListener("change", draw);
  fill(host, element("h2", {}, heads.length > 1 ? `${heads.length} heads` : "The head, in numbers"),
    element("p", { class: "lead" }, "Each picture is one head's weights, queries down and keys across, dark for 0, bright for its largest. Choose one to see it everywhere."),
    element("div", { class: "controls" }, element("label", { class: "check" }, log, "log scale")),
    element("div", { class: heads.length <= 3 ? "beside" : null }, grid, element("details", { open: heads.length <= 12 }, element("summary", {}, "The scores as a table"), element("div", { class: "scroll" }, element("table", { class: "plain" }, element("caption", { class: "unseen" }, "What each head does"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), names.map((key) => element("th", { scope: "col", class: "number", title: scoreNames[key][1] }, scoreNames[key][0])))),
      element("tbody", {}, rows))), element("p", { class: "quiet" }, names.map((key) => `${scoreNames[key][0]}: ${scoreNames[key][1]}`).join(". ") + "."))),
    exports({ name: () => "heads", svg: () => headsSvg(heads), csv: () => [["head", ...names], ...heads.map(({ name, scores }) => [name, ...names.map((key) => scores[key])])] }));
  draw();
  onSelection(mark);
}
