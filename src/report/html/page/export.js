// Figures and tables on their way out: SVG, PNG, CSV.

const xml = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c])
  .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd");

function save(name, blob) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const hatchPattern = '<defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff"/><rect width="1" height="5" fill="#d0d0d0"/></pattern></defs>';

// On white; `before` has what is not drawn.
const svgFile = (width, height, before, parts) => `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="#222">${before}<rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;

// A standalone SVG of a matrix: labels, cells, a legend of the true range, on white.
function matrixSvg({ matrix, rowLabels, columnLabels, scale, label: title }) {
  const cell = Math.max(2, Math.min(36, 640 / Math.max(matrix.rows, matrix.columns)));
  const left = 110, top = 100, hatched = 'fill="url(#masked)"', wide = cell * matrix.columns, high = cell * matrix.rows, parts = [];
  if (matrix.values.length <= 4096) {
    matrix.values.forEach((x, i) => {
      const rgb = matrix.masked?.[i] ? null : scale.colour(x, Math.floor(i / matrix.columns)), at = `x="${left + cell * (i % matrix.columns)}" y="${top + cell * Math.floor(i / matrix.columns)}"`;
      parts.push(`<rect ${at} width="${cell}" height="${cell}" ${rgb ? `fill="${css(rgb)}"` : hatched}><title>${exactly(x)}${matrix.masked?.[i] ? ", masked" : ""}</title></rect>`);
    });
  } else {
    parts.push(`<rect x="${left}" y="${top}" width="${wide}" height="${high}" ${hatched}/><image x="${left}" y="${top}" width="${wide}" height="${high}" preserveAspectRatio="none" image-rendering="pixelated" href="${pixelsOf(matrix, scale).toDataURL()}"/>`);
  }
  const rows = rowLabels.length, columns = columnLabels.length;
  const everyRow = Math.ceil(rows * 13 / high), everyColumn = Math.ceil(columns * 13 / wide);
  const label = (text, at) => parts.push(`<text ${at}>${xml(word(text))}</text>`);
  rowLabels.forEach((text, i) => i % everyRow === 0 && label(text, `x="${left - 8}" y="${top + high * (i + 0.5) / rows + 4}" text-anchor="end"`));
  columnLabels.forEach((text, j) => j % everyColumn === 0 && label(text, `transform="translate(${left + wide * (j + 0.5) / columns},${top - 8}) rotate(-50)"`));
  for (let i = 0; i < 48; i++) parts.push(`<rect x="${left + 4 * i}" y="${top + high + 18}" width="4.5" height="10" fill="${css(between(scale.diverging ? puor : cividis, i / 47))}"/>`);
  const name = legendName(scale, "");
  parts.push(`<text x="${left}" y="${top + high + 44}">${scale.lowText}</text><text x="${left + 192}" y="${top + high + 44}" text-anchor="end">${scale.highText}</text><text x="${left + 204}" y="${top + high + 27}">${name}</text>`);
  const others = otherKinds(scale), colours = { masked: "url(#masked)", nan: css(notANumber), infinite: css(cividis.at(-1)) };
  others.forEach(({ kind, text }, i) => parts.push(`<rect x="${left + 100 * i}" y="${top + high + 56}" width="12" height="12" fill="${colours[kind]}" stroke="#888"/>`,
    `<text x="${left + 100 * i + 18}" y="${top + high + 66}">${text}</text>`));
  const width = left + Math.max(wide, 300) + 80, height = top + high + (others.length ? 84 : 60);
  return svgFile(width, height, `<title>${xml(title)}</title>${hatchPattern}`, parts);
}

// A live SVG as a file of its own: what the style sheet gave it becomes attributes.
function standalone(node) {
  const root = document.documentElement, copy = node.cloneNode(true), from = [node, ...node.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  root.classList.add("light");  // on white, as the other figures
  to.forEach((made, i) => {
    const look = getComputedStyle(from[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "text-anchor"]) made.setAttribute(name, look.getPropertyValue(name));
  });
  root.classList.remove("light");
  const box = node.getBoundingClientRect();
  copy.setAttribute("width", Math.round(box.width));
  copy.setAttribute("height", Math.round(box.height));
  copy.prepend(element("rect", { width: "100%", height: "100%", fill: "#fff" }));
  return new XMLSerializer().serializeToString(copy);
}

async function savePng(name, svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(name, blob), "image/png");
}

function csvOf(rows) {
  const field = (x) => {
    // A text that a spreadsheet would take for a formula is quoted by an apostrophe, as spreadsheets write it.
    const text = typeof x === "number" ? exactly(x).replace("−∞", "-inf").replace("∞", "inf") : /^[=+\-@\t\r]/.test(x) ? `'${x}` : String(x);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}
const matrixRows = ({ matrix, rowLabels, columnLabels }) => [["", ...columnLabels],
  ...Array.from({ length: matrix.rows }, (_, i) => [rowLabels[i] ?? "", ...matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns)])];

const mostRows = 400;  // of a table on the page; a file has all
const openTables = new Set();
// Rows as a table, the first of them its head.
function tableOf(title, [head, ...rows]) {
  const cell = (x) => element("td", { class: typeof x === "number" ? "number" : null }, typeof x === "number" ? exactly(x) : token(x, 24));
  return table({ class: "plain" }, element("caption", {}, title, rows.length > mostRows ? `: the first ${mostRows} of ${rows.length} rows` : ""), head.map((x) => element("th", { scope: "col" }, token(x, 24))),
    rows.slice(0, mostRows).map(([first, ...others]) => element("tr", {}, element("th", { scope: "row" }, token(String(first), 24)), others.map(cell))));
}

// Buttons for what there is, and its numbers as a table: { name() of the files, title() of the figure, svg(), csv(),
// table() where the page shows fewer numbers than the file, or null where it shows them already }.
function exports({ name, title, svg, csv, table = csv }) {
  const said = element("span", { class: "quiet" }), buttons = [], place = element("div", { class: "scroll tall" }), which = name().replace(/\d+/g, "");
  const button = (kind, act) => buttons[buttons.push(element("button", { class: "export", type: "button", "data-export": kind, onclick: act }, kind)) - 1];
  const numbers = table && element("details", { class: "numbers", open: openTables.has(which), ontoggle: () => {
    openTables[numbers.open ? "add" : "delete"](which);
    host.renew();
  } }, element("summary", {}, "as a table"), place);
  const host = element("div", { class: "exports", role: "group" }, said,
    svg && button("SVG", () => save(`${name()}.svg`, new Blob([svg()], { type: "image/svg+xml" }))),
    svg && button("PNG", () => savePng(`${name()}.png`, svg())),
    csv && button("CSV", () => save(`${name()}.csv`, new Blob([csvOf(csv())], { type: "text/csv" }))), numbers);
  host.renew = () => {
    const shown = title();
    said.textContent = shown;
    for (const made of buttons) made.setAttribute("aria-label", `Save “${shown}” as ${made.dataset.export}`);
    if (numbers) numbers.firstChild.setAttribute("aria-label", `“${shown}” as a table`);
    if (numbers?.open) fill(place, tableOf(shown, table()));
  };
  host.renew();
  return host;
}
// After a new selection the buttons and tables have their figures' new names and numbers.
function renewExports() {
  for (const host of document.querySelectorAll(".exports")) host.renew?.();
}
// A matrix as a table: all of it, or the selected row where it is large.
function tableRows(view) {
  const { matrix, selected, rowLabels, columnLabels } = view, { rows, columns, values } = matrix;
  if (rows * columns <= 2500 || selected?.row === undefined) return matrixRows(view);
  const row = Math.floor(selected.row / (matrix.factor ?? 1));
  return [["key", word(rowLabels[selected.row])], ...Array.from(values.subarray(row * columns, (row + 1) * columns), (x, j) => [columnLabels[j * (matrix.factor ?? 1)], x])];
}
// A matrix with its legend and its own buttons.
const matrixFigure = (view, name) => [matrixView(view), legend(view.scale),
  exports({ name: () => name, title: () => view.label, svg: () => matrixSvg(view), csv: () => matrixRows(view), table: () => tableRows(view) })];
