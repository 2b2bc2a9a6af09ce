// The steps as the way of the data: queries, keys and values are three projections of the same inputs, beside one
// another; scores come of the first two, and the weights meet the values again in the context.

// Beside a map of heads the cards are small and have no pictures. "rotated queries" takes two lines.
function flowCard() {
  const more = blocks.some((block) => block.step("rotated queries") || block.step("mapped queries")) ? 18 : 0;
  return severalLayers ? { width: 82, height: 46 + more, gapX: 18, gapY: 8 } : { width: 88, height: 104 + more, gapX: 24, gapY: 12 };
}

// Where each step's card stands: { name: { column, row } }, rows counted from the top.
function flowPlaces(block) {
  const has = (name) => block.step(name), places = {};
  const projected = ["queries", "keys", "values"].filter(has), middle = (projected.length - 1) / 2;
  let column = -1;
  const next = (row, ...names) => {
    const found = names.filter(has);
    if (found.length) column++;
    found.forEach((name, i) => { places[name] = { column, row: row + i }; });
  };
  const row = projected.length > 1 ? 0.5 : 0;
  next(has("source") ? row : Math.max(middle, 0), "inputs", "source");
  const low = Math.max(projected.length - 1, 0), asked = has("query latents") ? 1 : 0;
  next(low, "compressed");
  next(low - asked, ...(asked ? ["query latents"] : []), "latents");
  next(0, ...projected);
  next(0, "rotated queries", "rotated keys");
  next(0, "mapped queries", "mapped keys", "beta", "decay");
  for (const step of block.steps.filter((step) => step.pairs)) next(row, step.name);
  const last = has("values") && projected.length > 1 ? row + 0.75 : row;
  next(last, "context", "gates");
  for (const name of ["gated", "normed", "merged", "output"]) next(last, name);
  return places;
}

// [from, to]: which step is made of which.
function flowWires(block) {
  const has = (name) => block.step(name), pairs = block.steps.filter((step) => step.pairs).map((step) => step.name);
  const source = has("source") ? "source" : "inputs", origin = has("latents") ? "latents" : source;
  const wires = [[has("query latents") ? "query latents" : "inputs", "queries"], ["inputs", "query latents"], ["inputs", "compressed"], [has("compressed") ? "compressed" : "inputs", "latents"], [origin, "keys"], [origin, "values"]];
  const rotated = has("rotated queries") ? ["rotated queries", "rotated keys"] : has("mapped queries") ? ["mapped queries", "mapped keys", "beta", "decay"] : ["queries", "keys"];
  if (has("mapped queries")) wires.push(["queries", "mapped queries"], ["keys", "mapped keys"], ["inputs", "beta"], ["inputs", "decay"]);
  if (has("rotated queries")) wires.push(["queries", "rotated queries"], ["keys", "rotated keys"]);
  for (const from of has("queries") || has("keys") ? rotated : [...new Set(["inputs", source])]) wires.push([from, pairs[0]]);
  for (let i = 1; i < pairs.length; i++) wires.push([pairs[i - 1], pairs[i]]);
  wires.push([pairs.at(-1), "context"], [has("values") ? "values" : source, "context"], ["context", "normed"], ["context", "gated"], ["gates", "gated"],
    [["normed", "gated", "context"].find(has), "merged"], [["merged", "normed", "gated", "context"].find(has), "output"]);
  return wires.filter(([from, to]) => has(from) && has(to));
}

function wirePath(from, to) {
  const { width, height, gapX, gapY } = flowCard();
  const x = (place) => place.column * (width + gapX), y = (place) => place.row * (height + gapY) + height / 2;
  const [x1, y1, x2, y2] = [x(from) + width, y(from), x(to) - 5, y(to)];
  if (to.column === from.column + 1) return `M${x1} ${y1}C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}`;
  // Past other cards: along its own row, or below them where it shares theirs.
  const below = from.row === to.row ? y1 + height / 2 + 8 : y1, bend = x2 - gapX / 2;
  const start = below === y1 ? `M${x1} ${y1}` : `M${x1 - width / 2} ${y1 + height / 2}V${below}`;
  return `${start}H${bend - 8}Q${bend} ${below} ${bend} ${below + Math.sign(y2 - below) * 8}V${y2 - Math.sign(y2 - below) * 8}Q${bend} ${y2} ${x2} ${y2}`;
}

function flow(block) {
  const places = flowPlaces(block), { width, height, gapX, gapY } = flowCard(), all = Object.values(places);
  const columns = Math.max(...all.map((place) => place.column)) + 1, rows = Math.max(...all.map((place) => place.row)) + 1;
  const size = { width: columns * (width + gapX) - gapX, height: rows * (height + gapY) - gapY + 12 };
  const head = element("marker", { id: "arrow-head", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, element("path", { d: "M0 0L8 4L0 8Z" }));
  const wires = flowWires(block).map(([from, to]) => element("path", { class: "wire", d: wirePath(places[from], places[to]), "marker-end": "url(#arrow-head)", "data-from": from, "data-to": to }));
  return element("div", { class: "flow", style: { width: `${size.width}px`, height: `${size.height}px` } }, element("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, "aria-hidden": "true" }, element("defs", {}, head), wires),
    block.steps.map((step) => {
      const card = stepCard(step), place = places[step.name];
      Object.assign(card.style, { left: `${place.column * (width + gapX)}px`, top: `${place.row * (height + gapY)}px`, width: `${width}px`, height: `${height}px` });
      return card;
    }));
}
