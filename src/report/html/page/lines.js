// The weights as lines from each query to its keys.

const lineRows = 40;

// Which words stand left and right: all of a short text; of a long one the query's neighbours and its largest keys.
function lineSides() {
  const queries = [...report.tokens.keys()], keys = [...report.keyTokens.keys()];
  if (Math.max(queries.length, keys.length) <= lineRows) return [queries, keys];
  const from = Math.max(0, Math.min(state.query - 8, queries.length - 17));
  const largest = topKeys(currentBlock().step("weights"), state.head, state.query).slice(0, 16).filter(({ weight }) => weight > 0);
  return [queries.slice(from, from + 17), largest.map(({ key }) => key).sort((a, b) => a - b)];
}

// The lines of the words that are shown: { query, key, weight, from, to }, the last two counted among what is shown.
function shownLines([queries, keys] = lineSides()) {
  const step = currentBlock().step("weights");
  return queries.flatMap((query, from) => (step.pooled ? topKeys(step, state.head, query) : keys.map((key) => ({ key, weight: step.at(state.head, query, key) })))
    .map(({ key, weight }) => ({ query, key, weight, from, to: keys.indexOf(key) })).filter(({ to, weight }) => to >= 0 && Math.abs(weight) > 0.001));
}

function linesSvg() {
  const [queries, keys] = lineSides(), y = (i) => 24 + 28 * i, left = 150, right = 370;
  const lines = shownLines([queries, keys]).sort((a, b) => (a.query === state.query) - (b.query === state.query)).map(({ query, key, weight, from, to }) => {
    const on = query === state.query, size = Math.min(Math.abs(weight), 2);
    return element("line", { x1: left, y1: y(from) - 4, x2: right, y2: y(to) - 4, class: ["link", on && "on"], "data-query": query, "data-key": key,
      "stroke-width": (0.4 + 7 * size).toFixed(2), opacity: (on ? 0.4 + 0.6 * size : 0.08 + 0.25 * size).toFixed(3), "stroke-dasharray": weight < 0 && "5 4" },
    element("title", {}, `${word(report.tokens[query])} → ${word(report.keyTokens[key])}: ${exactly(weight)}`));
  });
  const words = (shown, tokens, name, x, anchor) => shown.map((at, row) =>
    label(x, y(row), word(tokens[at], 18), { "text-anchor": anchor, class: ["line-word", at === state[name] && "on"], onclick: () => select({ [name]: at }) }));
  return element("svg", { viewBox: `0 0 520 ${y(Math.max(queries.length, keys.length))}`, class: "lines", role: "img", "aria-label": `Lines from each query to its keys, ${headName()}` },
    lines, words(queries, report.tokens, "query", left - 10, "end"), words(keys, report.keyTokens, "key", right + 10, "start"));
}

function linesPanel(host) {
  if (!report.tokens.length || !report.keyTokens.length) return;
  const figure = element("figure", {});
  fill(host, lead("Queries stand left, keys right; the thicker a line, the larger the weight. Lines of the selected query are strong." + (report.kind?.recurrent ? " Dashed weights are negative." : "")),
    figure, exports({ name: () => fileName("lines"), title: () => `Who looks at whom, ${headName()}`, svg: () => standalone(figure.firstChild),
      csv: () => [["query", "key", "weight"], ...shownLines().map(({ query, key, weight }) => [report.tokens[query], report.keyTokens[key], weight])] }));
  return () => fill(figure, linesSvg());
}
