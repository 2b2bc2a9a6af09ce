// A matrix to look at: a real table with its numbers where it is small, a canvas where it is not.

const tableColumns = 16, tableRows = 24;

function legend(scale, { unit = "" } = {}) {
  const bar = element("canvas", { class: "legend-bar", width: 128, height: 1, "aria-hidden": "true" });
  const context = bar.getContext("2d");
  const pixels = context.createImageData(128, 1);
  for (let i = 0; i < 128; i++) {
    pixels.data.set([...between(scale.diverging ? puor : cividis, i / 127), 255], 4 * i);
  }
  context.putImageData(pixels, 0, 0);
  const other = [
    scale.minus > 0 && element("span", { class: "key" }, element("i", { class: "swatch masked" }), "−∞, masked"),
    scale.nan > 0 && element("span", { class: "key" }, element("i", { class: "swatch nan" }), `NaN (${scale.nan})`),
    scale.plus > 0 && element("span", { class: "key" }, element("i", { class: "swatch infinite" }), `∞ (${scale.plus})`),
  ];
  return element("div", { class: "legend", "data-low": scale.low, "data-high": scale.high },
    element("span", { class: "number" }, (scale.log && scale.low < scale.high ? "≤ " : "") + format(scale.low)), bar,
    element("span", { class: "number" }, format(scale.high)), scale.log ? element("span", {}, "log scale") : null,
    unit ? element("span", {}, unit) : null, other);
}

function paint(cell, x, scale) {
  const rgb = scale.colour(x);
  if (!rgb) return cell.classList.add("masked");
  cell.style.backgroundColor = css(rgb);
  cell.style.color = inkOn(rgb);
  if (x === Infinity) cell.classList.add("infinite");
}

// view: { matrix, rowLabels, columnLabels, scale, label, selected: { row, column }, pick(row, column), corner }
function matrixView(view) {
  const { rows, columns } = view.matrix;
  if (rows === 0 || columns === 0) return element("p", { class: "quiet" }, `${view.label}: no tokens`);
  return rows <= tableRows && columns <= tableColumns && !view.matrix.factor ? matrixTable(view) : matrixCanvas(view);
}

function matrixTable({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "", digits }) {
  const shown = digits ?? (matrix.columns > 10 ? 2 : 4);
  const head = element("tr", {}, element("td", { class: "corner" }, corner),
    columnLabels.map((text, j) => element("th", { scope: "col", class: j === selected.column ? "on" : null }, token(text, 9))));
  const body = rowLabels.slice(0, matrix.rows).map((text, i) => element("tr", {},
    element("th", { scope: "row", class: i === selected.row ? "on" : null }, token(text)),
    Array.from({ length: matrix.columns }, (_, j) => {
      const x = matrix.values[i * matrix.columns + j];
      const on = i === selected.row && (j === selected.column || selected.column === undefined);
      const cell = element("td", { class: on ? "cell on" : "cell", "data-row": i, "data-column": j, "data-value": exactly(x),
        title: `${word(text)} → ${word(columnLabels[j])}: ${exactly(x)}`,
        onclick: pick && (() => pick(i, j)) }, format(x, shown));
      paint(cell, x, scale);
      return cell;
    })));
  return element("div", { class: "scroll" },
    element("table", { class: pick ? "matrix live" : "matrix" }, element("caption", { class: "unseen" }, label),
      element("thead", {}, head), element("tbody", {}, body)));
}

function pixelsOf(matrix, scale) {
  const canvas = element("canvas", { width: matrix.columns, height: matrix.rows });
  if (!matrix.values.length) return canvas;
  const context = canvas.getContext("2d"), image = context.createImageData(matrix.columns, matrix.rows);
  const table = Array.from({ length: 1025 }, (_, i) => between(scale.diverging ? puor : cividis, i / 1024));
  for (let i = 0; i < matrix.values.length; i++) {
    const x = matrix.values[i];
    const rgb = Number.isNaN(x) ? notANumber : x === -Infinity ? [128, 128, 128]
      : table[x === Infinity ? 1024 : Math.round(1024 * Math.min(Math.max(scale.share(x), 0), 1))];
    image.data[4 * i] = rgb[0], image.data[4 * i + 1] = rgb[1], image.data[4 * i + 2] = rgb[2];
    image.data[4 * i + 3] = x === -Infinity ? 40 : 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The same picture for the same numbers: drawing it again costs nothing.
const drawn = new WeakMap();
function matrixCanvas({ matrix, rowLabels, columnLabels, scale, label, selected = {}, pick, corner = "" }) {
  const factor = matrix.factor ?? 1, key = matrix.values;
  const cached = drawn.get(key);
  const canvas = cached?.low === scale.low && cached?.high === scale.high && cached?.log === scale.log
    ? cached.canvas : pixelsOf(matrix, scale);
  drawn.set(key, { canvas, low: scale.low, high: scale.high, log: scale.log });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${label}: ${rowLabels.length} rows, ${columnLabels.length} columns`);
  const frame = element("div", { class: "frame" }, canvas);
  const wide = columnLabels.length, high = rowLabels.length;
  frame.style.aspectRatio = `${matrix.columns} / ${matrix.rows}`;
  const mark = (name, left, top, width, height) => {
    const box = element("div", { class: name });
    Object.assign(box.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * width}%`, height: `${100 * height}%` });
    frame.append(box);
  };
  if (selected.row !== undefined) mark("mark row", 0, selected.row / high, 1, 1 / high);
  if (selected.column !== undefined) mark("mark column", selected.column / wide, 0, 1 / wide, 1);
  if (pick) {
    frame.classList.add("live");
    frame.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const part = (at, from, size, count) => Math.min(Math.max(Math.floor((at - from) / size * count), 0), count - 1);
      pick(part(event.clientY, box.top, box.height, high), part(event.clientX, box.left, box.width, wide));
    });
  }
  const sides = element("div", { class: "canvas-view" }, element("div", { class: "axis-top" }, corner || `${wide} columns`),
    element("div", { class: "axis-left" }, axisLabels(rowLabels, selected.row)), frame);
  const note = factor > 1 && element("p", { class: "quiet" }, `Each cell is the largest of ${factor} × ${factor} weights, in 8 bits.`);
  return element("div", {}, sides, note || null, factor === 1 && selected.row !== undefined ? rowTable(matrix, selected.row, rowLabels, columnLabels) : null);
}

// The selected row in numbers: what a picture does not tell a screen reader.
function rowTable(matrix, row, rowLabels, columnLabels) {
  const details = element("details", {}, element("summary", {}, "The selected row as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const values = matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);
    details.append(element("div", { class: "scroll tall" }, element("table", { class: "plain" }, element("caption", { class: "unseen" }, word(rowLabels[row])),
      element("tbody", {}, Array.from(values, (x, j) => element("tr", {}, element("th", { scope: "row" }, token(columnLabels[j])), element("td", { class: "number" }, exactly(x))))))));
  });
  return details;
}

function axisLabels(labels, selected) {
  const every = Math.ceil(labels.length / 24);
  return labels.flatMap((text, i) => {
    if (i % every !== 0 && i !== selected) return [];
    if (selected !== undefined && i !== selected && Math.abs(i - selected) < every) return [];
    const label = element("span", { class: i === selected ? "on" : null }, token(text, 9));
    label.style.top = `${100 * (i + 0.5) / labels.length}%`;
    return [label];
  });
}
