// Labs: two routes to causal weights, and whether a changed future word can be noticed before it.

// Softmax of everything, future weights set to 0, rows divided by their sums.
function renormalised(weights, size) {
  const out = new Float32Array(weights.length);
  for (let i = 0; i < size; i++) {
    let sum = 0;
    for (let j = 0; j <= i; j++) sum += weights[i * size + j];
    for (let j = 0; j <= i; j++) out[i * size + j] = sum === 0 ? 0 : weights[i * size + j] / sum;
  }
  return out;
}

// The scores before a mask.
const unmasked = (block) => (block.step("masked") ? block.before("masked") : block.softmaxInput());

function maskRoutes(scaled, size) {
  const future = (at) => at % size > Math.floor(at / size), all = softmaxRows(scaled, size);
  const masked = scaled.map((s, at) => (future(at) ? -Infinity : s));
  return { all, divided: renormalised(all, size), masked, direct: softmaxRows(masked, size) };
}

function masksPanel(host) {
  const step = unmasked(currentBlock());
  if (!step?.exact || step.rows !== step.columns || !step.rows || report.keyTokens !== report.tokens) return;
  const views = element("div", { class: "routes small" }), said = element("p", { class: "note", id: "routes-said" });
  const draw = () => {
    const from = unmasked(currentBlock()), size = from.rows;
    const routes = maskRoutes(from.matrix(state.head).values, size);
    const future = Uint8Array.from({ length: size * size }, (_, at) => (at % size > Math.floor(at / size) ? 1 : 0));
    const show = (title, id, values, masked, wanted = state.scale) => {
      const matrix = { rows: size, columns: size, values, masked };
      return element("div", { id }, element("h3", {}, title), matrixFigure({ matrix, rowLabels: report.tokens, columnLabels: report.tokens,
        scale: scaleOf(matrix, chosenScale(wanted, matrix)), label: title, selected: { row: state.query, column: state.key }, pick: (query, key) => select({ query, key }) }, id));
    };
    const apart = routes.direct.reduce((most, x, i) => Math.max(most, Math.abs(x - routes.divided[i])), 0);
    fill(views, show("1 softmax of all scores", "route-all", routes.all), show("2 future set to 0, rows divided by their sums", "route-divided", routes.divided, future),
      show("1 future set to −∞", "route-masked", routes.masked, future, "linear"), show("2 softmax", "route-direct", routes.direct, future));
    said.textContent = `The two routes differ by at most ${format(apart, 9)}: the same weights, but the second never counts what it may not see, and needs one pass.`;
    said.dataset.apart = String(apart);
  };
  fill(host, element("p", { class: "lead" }, "Above: mask after the softmax and divide again. Below: mask before it."), views, said);
  onSelection(draw);
}

// The outputs' largest change in each row when row `changed` of the inputs moves by `amount`.
function leakTest(changed, amount, causal) {
  const inputs = stepAt("inputs"), before = inputs.values, after = before.slice();
  for (let c = 0; c < inputs.columns; c++) after[changed * inputs.columns + c] += amount;
  const was = forward(before, before, { causal }), now = forward(after, after, { causal });
  const columns = was.output.length / inputs.rows;
  const moved = report.tokens.map((_, i) => {
    let most = 0;
    for (let c = 0; c < columns; c++) most = Math.max(most, Math.abs(now.output[i * columns + c] - was.output[i * columns + c]));
    return most;
  });
  return { moved, output: now.output, columns };
}

function leakPanel(host) {
  if (!canRecompute() || stepAt("source") || report.tokens.length < 2) return;
  const last = report.tokens.length - 1;
  const chosen = element("select", { id: "leak-word" }, report.tokens.map((text, i) => element("option", { value: i }, `${i + 1} · ${word(text, 24)}`)));
  chosen.value = String(last);
  const amount = element("input", { type: "range", id: "leak-amount", min: -2, max: 2, step: 0.05, value: 1 }), amountText = element("output", { class: "number" });
  const mask = element("input", { type: "checkbox", id: "leak-mask" });
  mask.checked = isCausal();
  const table = element("div", { class: "scroll" }), said = element("p", { class: "note", id: "leak-said", "aria-live": "polite" });
  let moved = [];
  const place = (i) => (i < Number(chosen.value) ? "before" : i === Number(chosen.value) ? "changed" : "after");
  const draw = () => {
    const changed = Number(chosen.value), result = leakTest(changed, Number(amount.value), mask.checked), most = Math.max(...result.moved, 1e-30);
    moved = result.moved;
    const early = result.moved.slice(0, changed), leaks = early.filter((x) => x !== 0).length;
    amountText.textContent = `${amount.value > 0 ? "+" : ""}${format(Number(amount.value), 2)}`;
    said.classList.toggle("leaks", leaks > 0);
    said.dataset.leaks = String(leaks);
    fill(said, changed === 0 ? "No word comes before the first." : leaks === 0
      ? `No leak: the ${changed} output${changed === 1 ? "" : "s"} before “${word(report.tokens[changed])}” did not move by a single bit.`
      : `Leak: ${leaks} of ${changed} outputs before “${word(report.tokens[changed])}” moved. ${isCausal() && !mask.checked ? "That is what a forgotten mask does." : "This module has no mask: every word sees the future, as an encoder’s may and a language model’s must not."}`);
    const rows = result.moved.slice(0, 128).map((x, i) => {
      const cell = element("td", { class: "number bar", "data-value": String(x) }, format(x, 6));
      cell.style.backgroundSize = `${100 * x / most}% 70%`;
      return element("tr", { class: i === changed ? "on" : null, "data-word": i, "data-output": Array.from(result.output.subarray(i * result.columns, (i + 1) * result.columns), exactly).join(" ") },
        element("th", { scope: "row" }, token(report.tokens[i])), element("td", { class: "quiet" }, place(i)), cell);
    });
    fill(table, element("table", { class: "plain" }, element("caption", { class: "unseen" }, "How far each word’s output moved"), element("thead", {}, element("tr", {}, ["word", "", "largest change of its output"].map((name, i) => element("th", { scope: "col", class: i === 2 ? "number" : null }, name)))), element("tbody", {}, rows)));
  };
  for (const field of [chosen, amount, mask]) field.addEventListener("input", draw);
  const recomputed = forward(stepAt("inputs").values, sourceOf());
  const library = (stepAt("output") ?? stepAt("merged") ?? stepAt("context")).values;
  const apart = stepAt("dropped") ? NaN : recomputed.output.reduce((most, x, i) => Math.max(most, Math.abs(x - library[i])), 0);
  fill(host, element("p", { class: "lead" }, "Change one word’s embedding, and the page computes every output anew with the module’s own weights. With a causal mask nothing before that word may move."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "change", chosen), element("label", { class: "field" }, "by", amount), amountText, element("label", { class: "check" }, mask, "causal mask")),
    said, table,
    exports({ name: () => "leak", title: () => "How far each word’s output moved", table: null, csv: () => [["word", "place", "largest change"], ...moved.map((x, i) => [report.tokens[i], place(i), x])] }),
    element("p", { class: "quiet", id: "recomputed", "data-apart": String(apart) }, Number.isNaN(apart) ? "Computed without dropout."
      : `Unchanged, the page’s own computation differs from the library’s by at most ${format(apart, 9)}.`));
  draw();
}
