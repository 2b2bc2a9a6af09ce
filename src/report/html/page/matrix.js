// A matrix to look at: a real table with its numbers where they fit, a canvas where they do not.

const widthOf = (text, size) => 0.62 * size * Array.from(text).length;  // of a label, about

function legend(scale, { name = "" } = {}) {
  const bar = { background: `linear-gradient(to right, ${scale.stops.map(css)})` };
  return element("div", { class: "legend", "data-low": scale.low, "data-high": scale.high, "data-scale": scale.kind },
    element("span", {}, legendName(scale, name)), element("span", { class: "number" }, scale.lowText),
    element("span", { class: "legend-bar", style: bar }), element("span", { class: "number" }, scale.highText),
    otherKinds(scale).map(({ kind, text }) => element("span", { class: "key" }, element("i", { class: ["swatch", kind] }), text)));
}

const legendName = ({ kind }, name) => named(name, ["row", "log"].includes(kind) && `scale ${scaleNames[kind]}`);

// Lists what no colour of the bar tells.
function otherKinds(scale) {
  return [
    scale.masked > 0 && { kind: "masked", text: "masked" }, scale.minus > 0 && { kind: "masked", text: "−∞" },
    scale.nan > 0 && { kind: "nan", text: `NaN (${scale.nan})` }, scale.plus > 0 && { kind: "infinite", text: `∞ (${scale.plus})` },
  ].filter(Boolean);
}

// The width that a matrix has where its place does not tell: half of a wide page, all of a narrow one.
function roomForMatrix() {
  const box = byId("more"), inner = box.clientWidth - 2 * parseFloat(getComputedStyle(box).paddingLeft);
  return window.innerWidth > 860 ? Math.floor(0.48 * inner) : inner;
}

const widestLabel = (labels) => Math.max(...labels.map((text) => widthOf(word(text), 14)), 40) + 14;

// How many decimals a table of so many columns has room for; none: a canvas.
function digitsFor({ matrix, rowLabels, room = roomForMatrix() }) {
  const each = (room - widestLabel(rowLabels)) / matrix.columns;
  return each >= 74 ? 4 : each >= 44 ? 2 : undefined;
}

// view: { matrix, rowLabels, columnLabels, scale, label, selected: { row, column }, pick(row, column), corner, room }.
// Where something can be picked, the picture is one stop of Tab, and arrow keys pick what is beside.
function matrixView(view) {
  const { rows, columns, factor } = view.matrix, { selected, pick, rowLabels, columnLabels } = view;
  if (rows === 0 || columns === 0) return quiet(`${view.label}: no tokens`);
  const digits = rows <= 24 && !factor ? digitsFor(view) : undefined;
  const shown = digits ? matrixTable(view, digits) : matrixCanvas(view);
  const moved = (down, right) => pick(clamp(selected.row + down, rowLabels.length), clamp(selected.column + right, columnLabels.length));
  return pick ? roving(shown, moved) : shown;
}

function matrixTable({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "" }, digits) {
  const heading = (scope, text, on, most) => element("th", { scope, class: [on && "on"] }, token(text, most));
  const cell = (i, j) => {
    const at = i * matrix.columns + j, x = matrix.values[at], masked = matrix.masked?.[at] === 1, changed = matrix.changed?.[at] === 1;
    const on = i === selected.row && (j === selected.column || selected.column === undefined), rgb = masked ? null : scale.colour(x, i);
    return element("td", { class: ["cell", on && "on", !rgb && "masked", rgb && x === Infinity && "infinite"],
      style: rgb && { backgroundColor: css(rgb), color: inkOn(rgb) },
      "data-row": i, "data-column": j, "data-value": exactly(x), "data-masked": masked, "data-changed": changed,
      tabindex: pick && (on ? 0 : -1), "aria-selected": pick && String(on), onclick: pick && (() => pick(i, j)),
      title: named(`${word(rowLabels[i])} → ${word(columnLabels[j])}: ${exactly(x)}`, masked && "masked", changed && "changed") },
    format(x, digits));
  };
  const rows = rowLabels.slice(0, matrix.rows).map((text, i) =>
    element("tr", {}, heading("row", text, i === selected.row), Array.from({ length: matrix.columns }, (_, j) => cell(i, j))));
  return element("div", { class: "scroll" },
    table({ class: ["matrix", pick && "live", digits === 2 && "tight"], role: pick && "grid" }, unseen(label),
      [element("td", { class: "corner" }, corner), ...columnLabels.map((text, j) => heading("col", text, j === selected.column, digits > 2 ? 9 : 7))], rows));
}

// A canvas with a pixel for each cell, which `paint` sets; what it leaves out is transparent.
function bitmap({ columns, rows }, name, paint) {
  const canvas = element("canvas", { class: name, width: columns, height: rows, "aria-hidden": "true" });
  if (!rows || !columns) return canvas;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  paint(new Uint32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
  return canvas;
}
const pixel = (rgba) => new Uint32Array(Uint8ClampedArray.from(rgba).buffer)[0];  // as a canvas holds it

// The colours of a scale in 1025 steps, and behind them that of what is not a number.
const inSteps = new Map();
const coloursOf = (stops) => held(inSteps, stops, () =>
  Uint32Array.from({ length: 1026 }, (_, i) => pixel([...(i > 1024 ? notANumber : between(stops, i / 1024)), 255])));

// A pixel a cell; what is masked or −∞ is left out, so that the hatched ground shows.
function pixelsOf(matrix, scale) {
  const colours = coloursOf(scale.stops);
  return bitmap(matrix, "hatched", (pixels) => matrix.values.forEach((x, i) => {
    if (matrix.masked?.[i] || x === -Infinity) return;
    const share = x === Infinity ? 1 : clamped(scale.share(x, Math.floor(i / matrix.columns)));
    pixels[i] = colours[Number.isNaN(x) ? 1025 : Math.round(1024 * share)];
  }));
}

// The same picture for the same numbers: drawing it again costs nothing.
const drawn = new WeakMap();
const pictureOf = (matrix, scale) => held(held(drawn, matrix, () => new Map()), scale.kind, () => pixelsOf(matrix, scale));

function matrixCanvas({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "", room: given = roomForMatrix() }) {
  const factor = matrix.factor ?? 1, wide = columnLabels.length, high = rowLabels.length;
  // The corner's text stands beside the columns' labels where there is room for it, else above the whole.
  const labels = widestLabel(rowLabels), roomy = given > 440, beside = roomy ? Math.max(labels, widthOf(corner, 12) + 12) : labels;
  const room = Math.min(given, 720) - beside - 8, tall = Math.max(0.75 * window.innerHeight, 300);
  const cell = Math.min(36, room / wide, tall / high), width = Math.round(cell * wide), height = Math.round(cell * high);
  const at = Math.floor(selected.row / factor) * matrix.columns + Math.floor(selected.column / factor);
  const here = pick ? `; ${word(rowLabels[selected.row])}, ${word(columnLabels[selected.column])}: ${matrix.masked?.[at] ? "masked" : format(matrix.values[at])}` : "";
  const mark = (name, at, count, start, size) =>
    at !== undefined && element("div", { class: ["mark", name], style: { [start]: `${100 * at / count}%`, [size]: `${100 / count}%` } });
  const frame = element("div", { class: ["frame", pick && "live"], role: pick ? "application" : "img",
    "aria-roledescription": pick && "heatmap", tabindex: pick && 0, "aria-label": `${label}, ${high} rows, ${wide} columns${here}`,
    onclick: pick && (({ offsetX, offsetY }) => pick(clamp(offsetY / height * high, high), clamp(offsetX / width * wide, wide))),
    style: { width: `${width}px`, height: `${height}px` } },
  pictureOf(matrix, scale), changeMarks(matrix), mark("row", selected.row, high, "top", "height"), mark("column", selected.column, wide, "left", "width"));
  const said = corner || `${high} × ${wide}`;
  return element("div", {}, !roomy && quiet(said),
    element("div", { class: "canvas-view" }, element("div", { class: "corner", "aria-hidden": "true" }, roomy && said),
      axis(columnLabels, cell, selected.column, "top"), axis(rowLabels, cell, selected.row, "left"), frame),
    factor > 1 && quiet(`Each cell is the largest of ${factor} × ${factor} weights, in 8 bits.`));
}

// Marks on top of the picture what differs from the pass without changes; a table outlines its cells.
const changeMarks = (matrix) => matrix.changed?.includes(1) && bitmap(matrix, "changes", (pixels) =>
  matrix.changed.forEach((yes, i) => yes && (pixels[i] = pixel([230, 90, 0, 150]))));

// The labels beside a canvas: all of them while there is room, else every few; the selected one always.
function axis(labels, cell, selected, side) {
  const font = clamped(0.8 * cell, 7, 11), every = Math.ceil((font + 2) / cell), [start, across] = side === "left" ? ["top", "width"] : ["left", "height"];
  const isShown = (i) => i === selected || (i % every === 0 && !(Math.abs(i - selected) < every));
  const shown = labels.map((text, i) => isShown(i) &&
    element("span", { class: [i === selected && "on"], style: { [start]: `${100 * (i + 0.5) / labels.length}%` } }, token(text)));
  const longest = Math.max(...labels.map((text) => widthOf(word(text), font)), 0), upright = side === "top" && longest <= cell - 3;
  return element("div", { class: [`axis-${side}`, upright && "upright"], "aria-hidden": "true",
    style: { fontSize: `${font}px`, [across]: `${Math.ceil(upright ? font + 4 : longest + 8)}px` } }, shown);
}
