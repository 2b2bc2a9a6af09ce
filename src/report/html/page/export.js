// Figures and tables on their way out: SVG, PNG, CSV.

function save(name, blob) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// ---- a figure as a file of its own ------------------------------------------------------
const svgText = (node) => new XMLSerializer().serializeToString(node);
const rectangle = (x, y, width, height, look, ...more) => element("rect", { x, y, width, height, ...look }, more);
const label = (x, y, text, look) => element("text", { x, y, ...look }, text);

// On white, with the pattern of what is masked.
function svgFile(width, height, title, ...parts) {
  const hatching = element("pattern", { id: "masked", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    rectangle(0, 0, 5, 5, { fill: "#fff" }), rectangle(0, 0, 1, 5, { fill: "#d0d0d0" }));
  return svgText(element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 12, fill: "#222" },
    element("title", {}, title), element("defs", {}, hatching), rectangle(0, 0, "100%", "100%", { fill: "#fff" }), parts));
}
// A matrix as an image, on the hatched ground that shows where it has no colour.
const svgImage = (matrix, scale, x, y, width, height) => [rectangle(x, y, width, height, { fill: "url(#masked)" }),
  element("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated", href: pictureOf(matrix, scale).toDataURL() })];

function svgCells({ rows, columns, values, masked }, scale, left, top, size) {
  return Array.from({ length: rows * columns }, (_, i) => {
    const rgb = masked?.[i] ? null : scale.colour(values[i], Math.floor(i / columns));
    return rectangle(left + size * (i % columns), top + size * Math.floor(i / columns), size, size, { fill: rgb ? css(rgb) : "url(#masked)" },
      element("title", {}, named(exactly(values[i]), masked?.[i] && "masked")));
  });
}

// The true range of the colours, and what they do not tell.
function svgLegend(scale, left, top) {
  const colours = { masked: "url(#masked)", nan: css(notANumber), infinite: css(cividis.at(-1)) };
  const bar = Array.from({ length: 48 }, (_, i) => rectangle(left + 4 * i, top, 4.5, 10, { fill: css(between(scale.stops, i / 47)) }));
  const others = otherKinds(scale).map(({ kind, text }, i) =>
    [rectangle(left + 100 * i, top + 38, 12, 12, { fill: colours[kind], stroke: "#888" }), label(left + 100 * i + 18, top + 48, text)]);
  return [bar, label(left, top + 26, scale.lowText), label(left + 192, top + 26, scale.highText, { "text-anchor": "end" }), label(left + 204, top + 9, legendName(scale)), others];
}

// A standalone SVG of a matrix: labels, cells, a legend.
function matrixSvg({ matrix, rowLabels, columnLabels, scale, label: title }) {
  const cell = Math.max(2, Math.min(36, 640 / Math.max(matrix.rows, matrix.columns)));
  const left = 110, top = 100, wide = cell * matrix.columns, high = cell * matrix.rows;
  // As many labels as there is room for.
  const labels = (texts, room, one) => texts.map((text, i) => i % Math.ceil(texts.length * 13 / room) === 0 && one(word(text), room * (i + 0.5) / texts.length));
  return svgFile(left + Math.max(wide, 300) + 80, top + high + (otherKinds(scale).length ? 84 : 60), title,
    matrix.values.length <= 4096 ? svgCells(matrix, scale, left, top, cell) : svgImage(matrix, scale, left, top, wide, high),
    labels(rowLabels, high, (text, at) => label(left - 8, top + at + 4, text, { "text-anchor": "end" })),
    labels(columnLabels, wide, (text, at) => label(0, 0, text, { transform: `translate(${left + at},${top - 8}) rotate(-50)` })), svgLegend(scale, left, top + high + 18));
}

// A live SVG as a file of its own: what the style sheet gave it becomes attributes.
function standalone(node) {
  const root = document.documentElement, copy = node.cloneNode(true), from = [node, ...node.querySelectorAll("*")];
  root.classList.add("light");  // on white, as the other figures
  [copy, ...copy.querySelectorAll("*")].forEach((made, i) => {
    const look = getComputedStyle(from[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "text-anchor"]) made.setAttribute(name, look.getPropertyValue(name));
  });
  root.classList.remove("light");
  const { width, height } = node.getBoundingClientRect();
  copy.setAttribute("width", Math.round(width));
  copy.setAttribute("height", Math.round(height));
  copy.prepend(rectangle(0, 0, "100%", "100%", { fill: "#fff" }));
  return svgText(copy);
}

async function savePng(name, svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(name, blob), "image/png");
}

// ---- numbers --------------------------------------------------------------------------
function csvOf(rows) {
  const field = (x) => {
    // A text that a spreadsheet would take for a formula is quoted by an apostrophe, as spreadsheets write it.
    const text = typeof x === "number" ? exactly(x).replace("−∞", "-inf").replace("∞", "inf") : /^[=+\-@\t\r]/.test(x) ? `'${x}` : String(x);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",") + "\r\n").join("");
}
const matrixRows = ({ matrix: { values, columns }, rowLabels, columnLabels }) =>
  [["", ...columnLabels], ...rowsOf(values, columns).map((row, i) => [rowLabels[i] ?? "", ...row])];
// A matrix as a table: all of it, or the selected row where it is large.
function tableRows(view) {
  const { matrix, selected, rowLabels, columnLabels } = view, { rows, columns, values, factor = 1 } = matrix;
  if (rows * columns <= 2500 || selected?.row === undefined) return matrixRows(view);
  const row = rowsOf(values, columns)[Math.floor(selected.row / factor)];
  return [["key", word(rowLabels[selected.row])], ...Array.from(row, (x, j) => [columnLabels[j * factor], x])];
}

const mostRows = 400;  // of a table on the page; a file has all
// Rows as a table, the first of them its head.
function tableOf(title, [head, ...rows]) {
  const cell = (x) => (typeof x === "number" ? element("td", { class: "number" }, exactly(x)) : element("td", {}, token(x, 24)));
  return table({ class: "plain" }, element("caption", {}, title, rows.length > mostRows && `: the first ${mostRows} of ${rows.length} rows`),
    head.map((x) => token(x, 24)), rows.slice(0, mostRows).map(([first, ...others]) => namedRow({}, token(String(first), 24), others.map(cell))));
}

// ---- buttons for both ------------------------------------------------------------------
// Buttons for what there is, and its numbers as a table: { name() of the files, title() of the figure, svg(), csv(),
// table() where the page shows fewer numbers than the file, or null where it shows them already }.
function exports({ name, title, svg, csv, table = csv }) {
  const said = element("span", { class: "quiet" }), place = element("div", { class: "scroll tall" });
  const file = (end, type, text) => save(`${name()}.${end}`, new Blob([text], { type }));
  const ways = { SVG: svg && (() => file("svg", "image/svg+xml", svg())), PNG: svg && (() => savePng(`${name()}.png`, svg())), CSV: csv && (() => file("csv", "text/csv", csvOf(csv()))) };
  const buttons = Object.entries(ways).map(([kind, act]) => act && button(null, kind, act, { class: "export", "data-export": kind }));
  const numbers = table && element("details", { class: "numbers", id: `table-${name().replace(/\d+/g, "")}`, ontoggle: () => host.renew() },
    element("summary", {}, "as a table"), place);
  const host = element("div", { class: "exports", role: "group" }, said, buttons, numbers);
  host.renew = () => {
    const shown = said.textContent = title();
    for (const made of buttons) made?.setAttribute("aria-label", `Save “${shown}” as ${made.dataset.export}`);
    numbers?.firstChild.setAttribute("aria-label", `“${shown}” as a table`);
    if (numbers?.open) fill(place, tableOf(shown, table()));
  };
  host.renew();
  return host;
}
// After a new selection the buttons and tables have their figures' new names and numbers.
function renewExports() {
  for (const host of document.querySelectorAll(".exports")) host.renew?.();
}
// A matrix with its legend and its own buttons.
const matrixFigure = (view, name) => [matrixView(view), legend(view.scale),
  exports({ name: () => name, title: () => view.label, svg: () => matrixSvg(view), csv: () => matrixRows(view), table: () => tableRows(view) })];
