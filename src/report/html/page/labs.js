// The labs of a page that computes: its numbers, tried otherwise. The library computes all of it, and labs with passes of
// their own are a module's (module_labs.js).

const lab = () => (live.lab ??= new Library(live.code));
// Each row by itself, in a way that attn_rows() of src/web/door.hpp names.
const byRow = (way, values, columns) => (values.length ? lab().rows(way, values, columns) : Float32Array.from(values));

// ---- the selected row's scores, made larger or smaller, by three ways of normalising --------------------------------
function softmaxSentence(naive, stable, scores) {
  const most = Math.max(...stable), largest = Math.max(...scores);
  const overflow = naive.some(Number.isNaN) ? `The naive softmax fails: exp(${format(largest, 1)}) is too large for float32, and ∞ / ∞ is NaN. ` : "";
  if (naive.every((x) => x === 0)) return "The naive softmax fails: every exponential is 0.";
  if (stable.length > 1 && most > 0.999) return `${overflow}Softmax has become a step: ${percent(most)} on one key. Small changes of the scores no longer matter, and gradients vanish.`;
  if (stable.length > 1 && most < 1.02 / stable.length) return `${overflow}Softmax is nearly uniform: every key gets about 1/${stable.length}.`;
  return `${overflow}All keys have a say: the largest weight is ${percent(most)}.`;
}

function softmaxPanel(host) {
  const step = currentBlock().step("scores") ?? currentBlock().step("scaled");
  if (!step || !step.rows || !step.columns) return;
  const slider = element("input", { type: "range", id: "softmax-scale", min: -2, max: 4, step: 0.01, value: Math.log10(Math.abs(scaleFactor()) || 1) });
  const factorText = element("output", { class: "number", id: "softmax-factor" }), view = element("div", { class: "scroll" }), said = element("p", { class: "note", id: "softmax-said", "aria-live": "polite" });
  let factor = scaleFactor(), numbersShown = [];
  const visible = () => {
    const block = currentBlock(), masked = block.step("masked");
    return report.keyTokens.map((_, key) => key).filter((key) => masked?.at(state.head, state.query, key) !== -Infinity);
  };
  const draw = () => {
    const block = currentBlock(), scores = block.step("scores") ?? block.step("scaled"), keys = visible();
    const scaled = keys.map((key) => Math.fround(scores.at(state.head, state.query, key) * factor));
    const ways = ["sum", "naive", "softmax"].map((way) => Array.from(byRow(way, scaled, scaled.length)));
    const bar = (x) => {
      const width = Number.isFinite(x) ? Math.min(Math.max(x, 0), 1) * 100 : 0;
      return element("td", { class: Number.isFinite(x) && x >= 0 ? "number bar" : "number bar wrong", "data-value": String(x), style: { backgroundSize: `${width}% 70%` } }, format(x));
    };
    const few = keys.length <= 16 ? keys.map((_, i) => i) : keys.map((_, i) => i).sort((a, b) => ways[2][b] - ways[2][a]).slice(0, 16);
    numbersShown = few.map((i) => [report.keyTokens[keys[i]], scaled[i], ...ways.map((way) => way[i])]);
    factorText.textContent = format(factor, 3);
    said.textContent = keys.length ? softmaxSentence(ways[1], ways[2], scaled) : "This query sees no key.";
    fill(view, table({ class: "plain wide" }, element("caption", { class: "unseen" }, "The selected query’s scores, normalised in three ways"),
      ["key", "score · scale", "s / Σ s", "naive: exp(s) / Σ exp(s)", "stable: exp(s − max) / Σ"].map((name, i) => element("th", { scope: "col", class: i ? "number" : null }, name)),
      few.map((i) => element("tr", { "data-key": keys[i], class: keys[i] === state.key ? "on" : null }, element("td", {}, token(report.keyTokens[keys[i]])),
        element("td", { class: "number" }, format(scaled[i])), ways.map((way) => bar(way[i]))))),
    few.length < keys.length && element("p", { class: "quiet" }, `The ${few.length} largest of ${keys.length} keys.`));
  };
  slider.addEventListener("input", () => { factor = 10 ** Number(slider.value); draw(); });
  const reset = element("button", { type: "button", id: "softmax-reset", onclick: () => { factor = scaleFactor(); slider.value = String(Math.log10(Math.abs(factor) || 1)); draw(); } }, "the module’s scale");
  fill(host, element("p", { class: "lead" }, "The selected query’s scores, times a scale of your choice. Dividing by the sum breaks on negative scores, the naive softmax overflows, the stable one does neither."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "scale", slider), factorText, reset), said, view,
    exports({ name: () => "softmax", title: () => `Three ways to normalise, ${headName()}`, table: null, csv: () => [["key", "score", "by sum", "naive", "stable"], ...numbersShown] }));
  onSelection(draw);
}

// ---- two routes to causal weights --------------------------------------------------------------------------------------
// The scores before a mask.
const unmasked = (block) => (block.step("masked") ? block.before("masked") : block.softmaxInput());

function maskRoutes(scores, size) {
  const later = future(size, size), all = byRow("softmax", scores, size), masked = scores.map((s, at) => (later[at] ? -Infinity : s));
  return { all, divided: byRow("divided", all, size), masked, direct: byRow("softmax", masked, size) };
}

function masksPanel(host) {
  const step = unmasked(currentBlock());
  if (!step?.exact || step.rows !== step.columns || !step.rows || report.keyTokens !== report.tokens) return;
  const views = element("div", { class: "routes small" }), said = element("p", { class: "note", id: "routes-said" });
  const draw = () => {
    const from = unmasked(currentBlock()), size = from.rows, routes = maskRoutes(from.matrix(state.head).values, size), later = future(size, size);
    const show = (title, id, values, masked, wanted = state.scale) => {
      const matrix = { rows: size, columns: size, values, masked };
      return element("div", { id }, element("h3", {}, title), matrixFigure({ matrix, rowLabels: report.tokens, columnLabels: report.tokens,
        scale: scaleOf(matrix, chosenScale(wanted, matrix)), label: title, selected: { row: state.query, column: state.key }, pick: (query, key) => select({ query, key }) }, id));
    };
    const apart = routes.direct.reduce((most, x, i) => Math.max(most, Math.abs(x - routes.divided[i])), 0);
    fill(views, show("1 softmax of all scores", "route-all", routes.all), show("2 future set to 0, rows divided by their sums", "route-divided", routes.divided, later),
      show("1 future set to −∞", "route-masked", routes.masked, later, "linear"), show("2 softmax", "route-direct", routes.direct, later));
    said.textContent = `The two routes differ by at most ${format(apart, 9)}: the same weights, but the second never counts what it may not see, and needs one pass.`;
    said.dataset.apart = String(apart);
  };
  fill(host, element("p", { class: "lead" }, "Above: mask after the softmax and divide again. Below: mask before it."), views, said);
  onSelection(draw);
}

// Once the library is there; what was drawn before stays as it is.
function addLabs() {
  for (const one of labs) panel(more, ...one, severalLayers);
  building = undefined;
  more.append(...["checks", "snippets"].map((id) => document.getElementById(id)).filter(Boolean));
  select({});
}

labs.push(["softmax", "Lab: three ways to normalise", softmaxPanel], ["masks", "Lab: two routes to a causal mask", masksPanel]);
