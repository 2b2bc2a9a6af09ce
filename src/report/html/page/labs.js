// The labs of a page that computes: its numbers, tried otherwise. The library computes all of it, and labs with passes of
// their own are a module's (module_labs.js).

const lab = () => (live.lab ??= new Library(live.code));
// Each row by itself, in a way that attn_rows() of src/web/door.hpp names.
const byRow = (way, values, columns) => (values.length ? lab().rows(way, values, columns) : Float32Array.from(values));

// ---- what labs are made of -----------------------------------------------------------------------------------------
const saidNote = (id) => element("p", { class: "note", id, "aria-live": "polite" });
const output = (id) => element("output", { class: "number", id });
const range = (id, min, max, step, attributes) => input(id, "range", { min, max, step, ...attributes });
// A number in front of a bar, whose length is a share of the cell.
const barCell = (x, share, { wrong, digits } = {}) => element("td", { class: ["number bar", wrong && "wrong"], "data-value": String(x),
  style: { backgroundSize: `${Number.isFinite(share) ? clamped(share) * 100 : 0}% 70%` } }, format(x, digits));
// A matrix of a lab, under its title.
const labFigure = (title, id, matrix, view) =>
  element("div", { id }, element("h3", {}, title), matrixFigure({ matrix, scale: scaleOf(matrix), label: title, ...view }, id));
// Returns by how much two ways differ at most.
const apart = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
// A figure of queries and keys shows and moves what is selected.
const pickedPair = () => ({ selected: { row: state.query, column: state.key }, pick: (query, key) => select({ query, key }) });

// ---- the selected row's scores, made larger or smaller, by three ways of normalising --------------------------------
function softmaxSentence(naive, stable, scores) {
  const most = Math.max(...stable), largest = Math.max(...scores), several = stable.length > 1;
  if (naive.every((x) => x === 0)) return "The naive softmax fails: every exponential is 0.";
  return (naive.some(Number.isNaN) ? `The naive softmax fails: exp(${format(largest, 1)}) is too large for float32, and ∞ / ∞ is NaN. ` : "") +
    (several && most > 0.999 ? `Softmax has become a step: ${percent(most)} on one key. Small changes of the scores no longer matter, and gradients vanish.`
      : several && most < 1.02 / stable.length ? `Softmax is nearly uniform: every key gets about 1/${stable.length}.`
        : `All keys have a say: the largest weight is ${percent(most)}.`);
}

function softmaxPanel(host) {
  const before = (block) => block.step("scores") ?? block.step("scaled"), step = before(currentBlock());
  if (!step?.rows || !step.columns) return;
  const slider = range("softmax-scale", -2, 4, 0.01, { oninput: () => draw(10 ** Number(slider.value)) });
  const factorText = output("softmax-factor"), view = element("div", { class: "scroll" }), said = saidNote("softmax-said");
  let factor, shown = [];
  const draw = (changed = factor) => {
    factor = changed;
    const at = (step, key) => step?.at(state.head, state.query, key), block = currentBlock();
    const keys = [...report.keyTokens.keys()].filter((key) => at(block.step("masked"), key) !== -Infinity);
    const scaled = keys.map((key) => Math.fround(at(before(block), key) * factor));
    const ways = ["sum", "naive", "softmax"].map((way) => Array.from(byRow(way, scaled, scaled.length)));
    const few = [...keys.keys()].sort((a, b) => (keys.length <= 16 ? a - b : ways[2][b] - ways[2][a])).slice(0, 16);
    shown = few.map((i) => [report.keyTokens[keys[i]], scaled[i], ...ways.map((way) => way[i])]);
    factorText.textContent = format(factor, 3);
    said.textContent = keys.length ? softmaxSentence(ways[1], ways[2], scaled) : "This query sees no key.";
    fill(view, table({ class: "plain wide" }, unseen("The selected query’s scores, normalised in three ways"), ["key", "score · scale", "s / Σ s", "naive: exp(s) / Σ exp(s)", "stable: exp(s − max) / Σ"],
      shown.map(([text, score, ...rest], i) => element("tr", { "data-key": keys[few[i]], class: [keys[few[i]] === state.key && "on"] }, element("td", {}, token(text)), element("td", { class: "number" }, format(score)),
        rest.map((x) => barCell(x, x, { wrong: !Number.isFinite(x) || x < 0 }))))),
    few.length < keys.length && quiet(`The ${few.length} largest of ${keys.length} keys.`));
  };
  const reset = () => {
    factor = scaleFactor();
    slider.value = String(Math.log10(Math.abs(factor) || 1));
  };
  fill(host, lead("The selected query’s scores, times a scale of your choice. Dividing by the sum breaks on negative scores, the naive softmax overflows, the stable one does neither."),
    controls(field("scale", slider), factorText, button("softmax-reset", "the module’s scale", () => { reset(); draw(); })), said, view,
    exports({ name: () => "softmax", title: () => `Three ways to normalise, ${headName()}`, table: null, csv: () => [["key", "score", "by sum", "naive", "stable"], ...shown] }));
  reset();
  return () => draw();
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
  fill(host, lead("Above: mask after the softmax and divide again. Below: mask before it."), views, said);
  return () => {
    const from = unmasked(currentBlock()), size = from.rows, routes = maskRoutes(from.matrix(state.head).values, size), later = future(size, size);
    const show = (title, name, masked, wanted = state.scale) => {
      const matrix = { rows: size, columns: size, values: routes[name], masked };
      return labFigure(title, `route-${name}`, matrix, { rowLabels: report.tokens, columnLabels: report.tokens, scale: scaleOf(matrix, chosenScale(wanted, matrix)), ...pickedPair() });
    };
    const most = apart(routes.direct, routes.divided);
    fill(views, show("1 softmax of all scores", "all"), show("2 future set to 0, rows divided by their sums", "divided", later),
      show("1 future set to −∞", "masked", later, "linear"), show("2 softmax", "direct", later));
    said.textContent = `The two routes differ by at most ${format(most, 9)}: the same weights, but the second never counts what it may not see, and needs one pass.`;
    said.dataset.apart = String(most);
  };
}

live.labs.push(["softmax", "Lab: three ways to normalise", softmaxPanel], ["masks", "Lab: two routes to a causal mask", masksPanel]);
