// The steps as the way of the data: queries, keys and values are three projections of the same inputs, beside one
// another; scores come of the first two, and the weights meet the values again in the context.

// Beside a map of heads the cards are small and have no pictures. "rotated queries" takes two lines.
function flowCard() {
  const more = blocks.some((block) => block.step("rotated queries") || block.step("mapped queries")) ? 18 : 0;
  return severalLayers() ? { width: 82, height: 46 + more, gapX: 18, gapY: 8 } : { width: 88, height: 104 + more, gapX: 24, gapY: 12 };
}

const pairsOf = (block) => block.steps.filter(({ pairs }) => pairs).map(({ name }) => name);

// Where each step's card stands: { name: { column, row } }, rows counted from the top.
function flowPlaces(block) {
  const has = (name) => block.step(name), projected = ["queries", "keys", "values"].filter(has), several = projected.length > 1;
  const row = several ? 0.5 : 0, low = Math.max(projected.length - 1, 0), asked = has("query latents") ? 1 : 0;
  const last = has("values") && several ? row + 0.75 : row;
  // Each column has the row of its first card, and the steps that may stand there.
  const columns = [
    [has("source") ? row : low / 2, "inputs", "source"], [low, "compressed"], [low - asked, "query latents", "latents"], [0, ...projected],
    [0, "rotated queries", "rotated keys"], [0, "mapped queries", "mapped keys", "beta", "decay"], ...pairsOf(block).map((name) => [row, name]),
    [last, "context", "gates"], ...["gated", "normed", "merged", "output"].map((name) => [last, name]),
  ];
  const found = columns.map(([row, ...names]) => [row, ...names.filter(has)]).filter(([, name]) => name);
  return Object.fromEntries(found.flatMap(([row, ...names], column) => names.map((name, i) => [name, { column, row: row + i }])));
}

// [from, to]: which step is made of which.
function flowWires(block) {
  const has = (name) => block.step(name), pairs = pairsOf(block), sources = ["latents", "source", "inputs"], heads = ["normed", "gated", "context"];
  const asked = [["rotated queries", "mapped queries", "queries"], ["rotated keys", "mapped keys", "keys"], ["beta"], ["decay"]];
  // Each is made of the first of each list that is there.
  const made = {
    "query latents": [["inputs"]], compressed: [["inputs"]], latents: [["compressed", "inputs"]], queries: [["query latents", "inputs"]], keys: [sources], values: [sources],
    "rotated queries": [["queries"]], "rotated keys": [["keys"]], "mapped queries": [["queries"]], "mapped keys": [["keys"]], beta: [["inputs"]], decay: [["inputs"]],
    [pairs[0]]: has("queries") || has("keys") ? asked : [["inputs"], ["source"]], ...Object.fromEntries(pairs.slice(1).map((name, i) => [name, [[pairs[i]]]])),
    context: [[pairs.at(-1)], ["values", "source", "inputs"]], normed: [["context"]], gated: [["context"], ["gates"]], merged: [heads], output: [["merged", ...heads]],
  };
  return Object.entries(made).flatMap(([to, lists]) => (has(to) ? lists.map((names) => [names.find(has), to]) : [])).filter(([from]) => from);
}

function wirePath(from, to) {
  const { width, height, gapX, gapY } = flowCard();
  const x = (place) => place.column * (width + gapX), y = (place) => place.row * (height + gapY) + height / 2;
  const [x1, y1, x2, y2] = [x(from) + width, y(from), x(to) - 5, y(to)];
  if (to.column === from.column + 1) return `M${x1} ${y1}C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}`;
  // Past other cards: along its own row, or below them where it shares theirs.
  const below = from.row === to.row ? y1 + height / 2 + 8 : y1, bend = x2 - gapX / 2, corner = Math.sign(y2 - below) * 8;
  const start = below === y1 ? `M${x1} ${y1}` : `M${x1 - width / 2} ${y1 + height / 2}V${below}`;
  return `${start}H${bend - 8}Q${bend} ${below} ${bend} ${below + corner}V${y2 - corner}Q${bend} ${y2} ${x2} ${y2}`;
}

function flow(block) {
  const places = flowPlaces(block), { width, height, gapX, gapY } = flowCard(), all = Object.values(places);
  const most = (of) => Math.max(...all.map((place) => place[of])) + 1;
  const size = { width: most("column") * (width + gapX) - gapX, height: most("row") * (height + gapY) - gapY + 12 };
  const head = element("marker", { id: "arrow-head", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, element("path", { d: "M0 0L8 4L0 8Z" }));
  const wires = flowWires(block).map(([from, to]) => element("path", { class: "wire", d: wirePath(places[from], places[to]), "marker-end": "url(#arrow-head)", "data-from": from, "data-to": to }));
  const inPixels = (box) => Object.fromEntries(Object.entries(box).map(([name, x]) => [name, `${x}px`]));
  return element("div", { class: "flow", style: inPixels(size) }, element("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, "aria-hidden": "true" }, element("defs", {}, head), wires),
    block.steps.map((step) => stepCard(step, inPixels({ left: places[step.name].column * (width + gapX), top: places[step.name].row * (height + gapY), width, height }))));
}
