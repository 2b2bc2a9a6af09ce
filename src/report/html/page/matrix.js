// A matrix to look at: a real table with its numbers where they fit, a canvas where they do not.

const widthOf = (text, size) => 0.62 * size * Array.from(text).length;  // of a label, about

function legend(scale, { name = "" } = {}) {
  const bar = element("canvas", { class: "legend-bar", width: 128, height: 1, "aria-hidden": "true" });
  const context = bar.getContext("2d"), pixels = context.createImageData(128, 1);
  for (let i = 0; i < 128; i++) pixels.data.set([...between(scale.diverging ? puor : cividis, i / 127), 255], 4 * i);
  context.putImageData(pixels, 0, 0);
  return element("div", { class: "legend", "data-low": scale.low, "data-high": scale.high, "data-scale": scale.kind },
    element("span", {}, legendName(scale, name)), element("span", { class: "number" }, scale.lowText), bar,
    element("span", { class: "number" }, scale.highText),
    otherKinds(scale).map(({ kind, text }) => element("span", { class: "key" }, element("i", { class: `swatch ${kind}` }), text)));
}

const legendName = (scale, name) => [name, scale.kind === "row" || scale.kind === "log" ? `scale ${scaleNames[scale.kind]}` : ""].filter(Boolean).join(", ");

// What a colour of the bar does not tell.
function otherKinds(scale) {
  return [
    scale.masked > 0 && { kind: "masked", text: "masked" }, scale.minus > 0 && { kind: "masked", text: "−∞" },
    scale.nan > 0 && { kind: "nan", text: `NaN (${scale.nan})` }, scale.plus > 0 && { kind: "infinite", text: `∞ (${scale.plus})` },
  ].filter(Boolean);
}

function paint(cell, x, row, masked, scale) {
  const rgb = masked ? null : scale.colour(x, row);
  if (!rgb) return cell.classList.add("masked");
  cell.style.backgroundColor = css(rgb);
  cell.style.color = inkOn(rgb);
  if (x === Infinity) cell.classList.add("infinite");
}

// The width that a matrix has where its place does not tell: half of a wide page, all of a narrow one.
function roomForMatrix() {
  const box = byId("more"), style = getComputedStyle(box);
  const inner = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
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
  const { rows, columns, factor } = view.matrix;
  if (rows === 0 || columns === 0) return quiet(`${view.label}: no tokens`);
  const digits = rows <= 24 && !factor ? digitsFor(view) : undefined;
  const shown = digits ? matrixTable(view, digits) : matrixCanvas(view), { selected, pick } = view;
  return pick ? roving(shown, (down, right) => pick(clamp(selected.row + down, view.rowLabels.length), clamp(selected.column + right, view.columnLabels.length))) : shown;
}

function matrixTable({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "" }, digits) {
  const head = [element("td", { class: "corner" }, corner), ...columnLabels.map((text, j) => element("th", { scope: "col", class: j === selected.column ? "on" : null }, token(text, digits > 2 ? 9 : 7)))];
  const body = rowLabels.slice(0, matrix.rows).map((text, i) => element("tr", {},
    element("th", { scope: "row", class: i === selected.row ? "on" : null }, token(text)),
    Array.from({ length: matrix.columns }, (_, j) => {
      const at = i * matrix.columns + j, x = matrix.values[at], masked = matrix.masked?.[at] === 1, changed = matrix.changed?.[at] === 1;
      const on = i === selected.row && (j === selected.column || selected.column === undefined);
      const cell = element("td", { class: on ? "cell on" : "cell", "data-row": i, "data-column": j, "data-value": exactly(x), "data-masked": masked, "data-changed": changed,
        tabindex: pick ? (on ? 0 : -1) : null, "aria-selected": pick ? String(on) : null,
        title: `${word(text)} → ${word(columnLabels[j])}: ${exactly(x)}${masked ? ", masked" : ""}${changed ? ", changed" : ""}`,
        onclick: pick && (() => pick(i, j)) }, format(x, digits));
      paint(cell, x, i, masked, scale);
      return cell;
    })));
  return element("div", { class: "scroll" },
    table({ class: `matrix${pick ? " live" : ""}${digits > 2 ? "" : " tight"}`, role: pick ? "grid" : null }, unseen(label), head, body));
}

// The colours of a scale in 1025 steps, and behind them that of what is not a number, as a canvas holds them.
const inSteps = new Map();
function coloursOf(stops) {
  return new Uint32Array(held(inSteps, stops, () => Uint8ClampedArray.from(Array.from({ length: 1026 }, (_, i) => [...(i > 1024 ? notANumber : between(stops, i / 1024)), 255]).flat())).buffer);
}

// A pixel a cell; what is masked or −∞ is left out, so that the hatched ground shows.
function pixelsOf(matrix, scale) {
  const canvas = element("canvas", { class: "hatched", width: matrix.columns, height: matrix.rows });
  if (!matrix.values.length) return canvas;
  const context = canvas.getContext("2d"), image = context.createImageData(matrix.columns, matrix.rows);
  const colours = coloursOf(scale.diverging ? puor : cividis), pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < matrix.values.length; i++) {
    const x = matrix.values[i];
    if (matrix.masked?.[i] || x === -Infinity) continue;
    const share = x === Infinity ? 1 : clamped(scale.share(x, Math.floor(i / matrix.columns)));
    pixels[i] = colours[Number.isNaN(x) ? 1025 : Math.round(1024 * share)];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The same picture for the same numbers: drawing it again costs nothing.
const drawn = new WeakMap();
function pictureOf(matrix, scale) {
  const cached = drawn.get(matrix);
  if (cached?.kind === scale.kind) return cached.canvas;
  const canvas = pixelsOf(matrix, scale);
  drawn.set(matrix, { canvas, kind: scale.kind });
  return canvas;
}

function matrixCanvas({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "", room: given = roomForMatrix() }) {
  const factor = matrix.factor ?? 1, wide = columnLabels.length, high = rowLabels.length;
  // The corner's text stands beside the columns' labels where there is room for it, else above the whole.
  const labels = widestLabel(rowLabels), roomy = given > 440, beside = roomy ? Math.max(labels, widthOf(corner, 12) + 12) : labels;
  const room = Math.min(given, 720) - beside - 8, tall = Math.max(0.75 * window.innerHeight, 300);
  const cell = Math.min(36, room / wide, tall / high);
  const canvas = pictureOf(matrix, scale);
  const row = Math.floor(selected.row / factor), at = row * matrix.columns + Math.floor(selected.column / factor);
  const here = pick ? `; ${word(rowLabels[selected.row])}, ${word(columnLabels[selected.column])}: ${matrix.masked?.[at] ? "masked" : format(matrix.values[at])}` : "";
  const frame = element("div", { class: "frame", role: pick ? "application" : "img", "aria-roledescription": pick ? "heatmap" : null, tabindex: pick ? 0 : null, "aria-label": `${label}, ${high} rows, ${wide} columns${here}`,
    style: { width: `${Math.round(cell * wide)}px`, height: `${Math.round(cell * high)}px` } }, canvas, changeMarks(matrix));
  const mark = (name, left, top, width, height) =>
    frame.append(element("div", { class: name, style: { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * width}%`, height: `${100 * height}%` } }));
  if (selected.row !== undefined) mark("mark row", 0, selected.row / high, 1, 1 / high);
  if (selected.column !== undefined) mark("mark column", selected.column / wide, 0, 1 / wide, 1);
  if (pick) {
    frame.classList.add("live");
    frame.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const part = (at, from, size, count) => clamp(Math.floor((at - from) / size * count), count);
      pick(part(event.clientY, box.top, box.height, high), part(event.clientX, box.left, box.width, wide));
    });
  }
  const said = corner || `${high} × ${wide}`;
  const sides = element("div", { class: "canvas-view" }, element("div", { class: "corner", "aria-hidden": "true" }, roomy ? said : ""),
    axis(columnLabels, cell, selected.column, "top"), axis(rowLabels, cell, selected.row, "left"), frame);
  const note = factor > 1 && quiet(`Each cell is the largest of ${factor} × ${factor} weights, in 8 bits.`);
  return element("div", {}, roomy ? null : quiet(said), sides, note || null);
}

// What differs from the pass without changes, above the picture; a table outlines its cells.
function changeMarks({ changed, rows, columns }) {
  if (!changed?.includes(1)) return null;
  const marks = element("canvas", { class: "changes", width: columns, height: rows, "aria-hidden": "true" }), context = marks.getContext("2d"), image = context.createImageData(columns, rows);
  changed.forEach((yes, i) => yes && image.data.set([230, 90, 0, 150], 4 * i));
  context.putImageData(image, 0, 0);
  return marks;
}

// The labels beside a canvas: all of them while there is room, else every few; the selected one always.
function axis(labels, cell, selected, side) {
  const font = clamped(0.8 * cell, 7, 11), every = Math.max(1, Math.ceil((font + 2) / cell));
  const near = Math.ceil((font + 2) / cell);
  const shown = labels.flatMap((text, i) => {
    if (i !== selected && (i % every !== 0 || (selected !== undefined && every > 1 && Math.abs(i - selected) < near))) return [];
    return [element("span", { class: i === selected ? "on" : null, style: { [side === "left" ? "top" : "left"]: `${100 * (i + 0.5) / labels.length}%` } }, token(text))];
  });
  const longest = Math.max(...labels.map((text) => widthOf(word(text), font)), 0), upright = side === "top" && longest <= cell - 3;
  const style = { fontSize: `${font}px`, [side === "left" ? "width" : "height"]: `${Math.ceil(upright ? font + 4 : longest + 8)}px` };
  return element("div", { class: `axis-${side}${upright ? " upright" : ""}`, "aria-hidden": "true", style }, shown);
}
