// The weights as lines from each query to its keys.

const lineRows = 40;

// Which words stand left and right: all of a short text; of a long one the query's neighbours and its largest keys.
function lineSides() {
  const all = (count) => Array.from({ length: count }, (_, i) => i);
  if (Math.max(report.tokens.length, report.keyTokens.length) <= lineRows) return [all(report.tokens.length), all(report.keyTokens.length)];
  const from = Math.max(0, Math.min(state.query - 8, report.tokens.length - 17));
  const keys = topKeys(currentBlock().step("weights"), state.head, state.query).slice(0, 16).filter((top) => top.weight > 0).map((top) => top.key);
  return [all(report.tokens.length).slice(from, from + 17), keys.sort((a, b) => a - b)];
}

// The lines of the words that are shown: { query, key, weight, from, to }, the last two counted among what is shown.
function shownLines([queries, keys] = lineSides()) {
  const step = currentBlock().step("weights");
  return queries.flatMap((query, from) => (step.pooled ? topKeys(step, state.head, query) : keys.map((key) => ({ key, weight: step.at(state.head, query, key) })))
    .map(({ key, weight }) => ({ query, key, weight, from, to: keys.indexOf(key) })).filter(({ to, weight }) => to >= 0 && Math.abs(weight) > 0.001));
}

function linesSvg() {
  const [queries, keys] = lineSides(), rowHeight = 28, height = rowHeight * Math.max(queries.length, keys.length) + 24, width = 520, left = 150, right = 370;
  const y = (i) => 24 + rowHeight * i, parts = shownLines([queries, keys]).map(({ query, key, weight, from, to }) => {
    const on = query === state.query, size = Math.min(Math.abs(weight), 2);
    return element("line", { x1: left, y1: y(from) - 4, x2: right, y2: y(to) - 4, class: on ? "link on" : "link", "data-query": query, "data-key": key,
      "stroke-width": (0.4 + 7 * size).toFixed(2), opacity: (on ? 0.4 + 0.6 * size : 0.08 + 0.25 * size).toFixed(3), "stroke-dasharray": weight < 0 ? "5 4" : null },
      element("title", {}, `${word(report.tokens[query])} → ${word(report.keyTokens[key])}: ${exactly(weight)}`));
  });
  parts.sort((a, b) => a.classList.contains("on") - b.classList.contains("on"));
  const label = (text, x, row, anchor, on, choose) => element("text", { x, y: y(row), "text-anchor": anchor, class: on ? "line-word on" : "line-word", onclick: choose }, word(text, 18));
  queries.forEach((query, row) => parts.push(label(report.tokens[query], left - 10, row, "end", query === state.query, () => select({ query }))));
  keys.forEach((key, row) => parts.push(label(report.keyTokens[key], right + 10, row, "start", key === state.key, () => select({ key }))));
  return element("svg", { viewBox: `0 0 ${width} ${height}`, class: "lines", role: "img", "aria-label": `Lines from each query to its keys, ${headName()}` }, parts);
}

function linesPanel(host) {
  if (!report.tokens.length || !report.keyTokens.length) return;
  const figure = element("figure", {});
  fill(host, lead("Queries stand left, keys right; the thicker a line, the larger the weight. Lines of the selected query are strong." + (report.kind?.recurrent ? " Dashed weights are negative." : "")),
    figure, exports({ name: () => fileName("lines"), title: () => `Who looks at whom, ${headName()}`, svg: () => standalone(figure.firstChild),
      csv: () => [["query", "key", "weight"], ...shownLines().map(({ query, key, weight }) => [report.tokens[query], report.keyTokens[key], weight])] }));
  onSelection(() => fill(figure, linesSvg()));
}
