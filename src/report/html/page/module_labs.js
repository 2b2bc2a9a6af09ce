// The labs of a module: passes of a library of their own, with a changed word or with other draws of dropout, and one
// projection against several.

const canFollow = () => !report.kind.recurrent && report.module !== "average";

// ---- whether a changed word can be noticed before it -----------------------------------------------------------------
// The outputs of a pass on these inputs. A module without a mask of its own has the scores of later words changed.
function outputsOf(values, causal) {
  const own = report.kind.mask, scores = openBlock().softmaxInput(), { rows, columns } = scores;
  const hidden = causal && !own ? Array.from(scores.values, (_, at) => ({ head: Math.floor(at / rows / columns), row: Math.floor(at / columns) % rows, column: at % columns })).filter(({ row, column }) => column > row) : [];
  open(lab(), { training: false, ...(own && { causal }) });
  pass(lab(), { ...wordsOf(stepAt("inputs"), report.tokens), values }, undefined, hidden.map((at) => ({ ...at, step: scores.name, value: "-inf" })));
  const { steps } = lab().blocks().blocks[0], step = (name) => steps.find((one) => one.name === name);
  return (step("output") ?? step("merged") ?? step("context")).values;
}

// The outputs' largest change in each row when row `changed` of the inputs moves by `amount`.
function leakTest(changed, amount, causal) {
  const { values: before, columns: width } = stepAt("inputs"), after = before.slice();
  for (let c = 0; c < width; c++) after[changed * width + c] += amount;
  const was = outputsOf(before, causal), output = outputsOf(after, causal), columns = output.length / report.tokens.length;
  const moved = report.tokens.map((_, i) => output.subarray(i * columns, (i + 1) * columns).reduce((most, x, c) => Math.max(most, Math.abs(x - was[i * columns + c])), 0));
  return { moved, output, columns };
}

function leakPanel(host) {
  if (!canFollow() || stepAt("source") || report.tokens.length < 2) return;
  const last = report.tokens.length - 1;
  const chosen = choice({ id: "leak-word" }, report.tokens.map((text, i) => [i, numberedWord(text, i)]), last);
  const amount = element("input", { type: "range", id: "leak-amount", min: -2, max: 2, step: 0.05, value: 1 }), amountText = element("output", { class: "number" });
  const mask = element("input", { type: "checkbox", id: "leak-mask", checked: isCausal() });
  const view = element("div", { class: "scroll" }), said = element("p", { class: "note", id: "leak-said", "aria-live": "polite" });
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
    const outputOf = (i) => Array.from(result.output.subarray(i * result.columns, (i + 1) * result.columns), exactly).join(" ");
    fill(view, table({ class: "plain" }, element("caption", { class: "unseen" }, "How far each word’s output moved"), ["word", "", "largest change of its output"].map((name, i) => element("th", { scope: "col", class: i === 2 ? "number" : null }, name)),
      result.moved.slice(0, 128).map((x, i) => element("tr", { class: i === changed ? "on" : null, "data-word": i, "data-output": outputOf(i) }, element("th", { scope: "row" }, token(report.tokens[i])),
        element("td", { class: "quiet" }, place(i)), element("td", { class: "number bar", "data-value": String(x), style: { backgroundSize: `${100 * x / most}% 70%` } }, format(x, 6))))));
  };
  for (const field of [chosen, amount, mask]) field.addEventListener("input", draw);
  fill(host, element("p", { class: "lead" }, "Change one word’s embedding, and the page computes every output anew with the module’s own weights. With a causal mask nothing before that word may move."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "change", chosen), element("label", { class: "field" }, "by", amount), amountText, element("label", { class: "check" }, mask, "causal mask")),
    said, view,
    exports({ name: () => "leak", title: () => "How far each word’s output moved", table: null, csv: () => [["word", "place", "largest change"], ...moved.map((x, i) => [report.tokens[i], place(i), x])] }),
    stepAt("dropped") && element("p", { class: "quiet" }, "Computed without dropout."));
  draw();
}

// ---- dropout, drawn again and again, as PyTorch draws it ---------------------------------------------------------------
class DropoutPasses {
  constructor(seed, flavour, p) {
    this.count = 0;
    open(live.drops, { dropout: p, training: true, seed, flavour });
  }
  // What the next pass in train mode leaves of the weights, of every head.
  next() {
    this.count++;
    pass(live.drops, wordsOf(stepAt("inputs"), report.tokens), wordsOf(stepAt("source"), report.keyTokens), editsOfSteps().filter(({ step }) => !step.endsWith("dropped")));
    const { rows, columns } = stepAt("weights"), plane = rows * columns, steps = live.drops.steps();
    const all = (name) => steps.filter((step) => step.name === name || step.name.endsWith(`.${name}`)).flatMap(({ values }) => Array.from({ length: values.length / plane }, (_, head) => values.slice(head * plane, (head + 1) * plane)));
    const dropped = all("dropped");
    return dropped.length ? dropped : all("weights");
  }
}

function dropoutPanel(host) {
  const step = stepAt("weights");
  if (!report.kind.linear || report.kind.recurrent || !step.rows || !step.columns) return;
  const field = (name, input) => element("label", { class: "field" }, name, input);
  const flavour = choice({ id: "dropout-flavour" }, [["mkl", "mkl: Linux, Intel"], ["native", "native: others"]], report.flavour);
  const p = element("input", { type: "range", id: "dropout-p", min: 0, max: 1, step: 0.05, value: config?.dropout || 0.5 }), shownP = element("output", { class: "number" });
  const seed = element("input", { type: "number", id: "dropout-seed", min: 0, max: 4294967295, step: 1, value: report.seed ?? 123 });
  const view = element("div", { class: "small" }), sums = element("p", { class: "quiet", id: "dropout-sums" }), said = element("p", { class: "note", id: "dropout-said", "aria-live": "polite" });
  let passes, shown, mean = null;
  const weights = () => step.matrix(state.head).values;
  const seedValue = () => Math.min(Math.max(Math.trunc(Number(seed.value)) || 0, 0), 4294967295);
  const restart = () => { passes = new DropoutPasses(seedValue(), flavour.value, Number(p.value)); draw(passes.next()); };
  const draw = (next) => { [shown, mean] = [next, null]; show(); };
  const show = () => {
    const chance = Number(p.value), values = (mean ?? shown)[state.head];
    const rowSums = Array.from({ length: step.rows }, (_, i) => values.subarray(i * step.columns, (i + 1) * step.columns).reduce((a, b) => a + b, 0));
    shownP.textContent = format(chance, 2);
    const matrix = { rows: step.rows, columns: step.columns, values, masked: blocks[0].masked(state.head) };
    fill(view, matrixFigure({ matrix, rowLabels: step.rowLabels, columnLabels: step.columnLabels,
      scale: stepScale(step, matrix), label: `Weights after dropout, ${headName()}`, selected: { row: state.query, column: state.key }, pick: (query, key) => select({ query, key }) }, `dropout-head-${state.head + 1}`));
    sums.textContent = `Row sums, 1 before: ${rowSums.slice(0, 12).map((x) => format(x, 3)).join("  ")}${rowSums.length > 12 ? " …" : ""}`;
    sums.dataset.sums = rowSums.join(" ");
    const apart = values.reduce((most, x, i) => Math.max(most, Math.abs(x - weights()[i])), 0);
    said.textContent = mean ? `The mean of ${mean.draws} draws: at most ${format(apart)} from the weights. Dropout changes each draw, not the expectation.`
      : `Draw ${passes.count} is what pass ${passes.count} of this module in train mode drops, with seed ${seedValue()} and p = ${format(chance, 2)}. What is kept is multiplied by 1/(1 − p).`;
    said.dataset.apart = String(apart);
  };
  const many = () => {
    const draws = Math.max(20, Math.min(1000, Math.floor(4e6 / (step.rows * step.columns * blocks[0].heads))));
    const sums = Array.from({ length: blocks[0].heads }, () => new Float64Array(step.rows * step.columns));
    for (let draw = 0; draw < draws; draw++) passes.next().forEach((left, head) => left.forEach((w, i) => { sums[head][i] += w; }));
    mean = Object.assign(sums.map((sum) => Float32Array.from(sum, (x) => x / draws)), { draws });
    show();
  };
  for (const input of [flavour, p, seed]) input.addEventListener("input", restart);
  fill(host, element("p", { class: "lead" }, "For one seed PyTorch drops other weights on other machines. Both of its ways are here, number for number."),
    element("div", { class: "controls" }, field("flavour", flavour), field("p", p), shownP, field("seed", seed)),
    element("div", { class: "controls" }, element("button", { type: "button", id: "dropout-again", onclick: () => draw(passes.next()) }, "Draw again"),
      element("button", { type: "button", id: "dropout-first", onclick: restart }, "First draw"), element("button", { type: "button", id: "dropout-mean", onclick: many }, "Mean of many draws")),
    said, view, sums);
  restart();
  onSelection(show);
}

// ---- one large projection split into heads, or a small one for each head: the same numbers ------------------------------
// The heads' matrices as columns of one (d_in, h · d): what MultiHeadAttention holds as W_query.
function wholeProjection(which, heads, size) {
  const parts = Array.from({ length: heads }, (_, head) => projection(which, head, size));
  return { inputs: parts[0].inputs, size: heads * size, at: (i, c) => parts[Math.floor(c / size)].at(i, c % size), bias: (c) => parts[Math.floor(c / size)].bias(c % size), parts };
}

// Rows of x by a projection: the queries of a head of its own.
function project(x, rows, p) {
  const weight = new Float32Array(p.size * p.inputs), bias = Float32Array.from({ length: p.size }, (_, c) => p.bias(c));
  for (let c = 0; c < p.size; c++) for (let i = 0; i < p.inputs; i++) weight[c * p.inputs + i] = p.at(i, c);
  const state = ["W_query", "W_key", "W_value"].flatMap((name) => [[`${name}.weight`, { shape: [p.size, p.inputs], values: weight }], [`${name}.bias`, { shape: [p.size], values: bias }]]);
  lab().openModule({ name: "self-v2", d_in: p.inputs, d_out: p.size, qkv_bias: true }, stateFile(Object.fromEntries(state)));
  lab().runModule(x, rows, p.inputs);
  return lab().steps().find(({ name }) => name === "queries").values.slice();
}

function bothWays(which) {
  const x = ((which !== "W_query" && stepAt("source")) || stepAt("inputs")).values, rows = stepAt(which === "W_query" ? "queries" : "keys").rows;
  const size = headSize(), heads = blocks[0].heads, whole = wholeProjection(which, heads, size), joined = project(x, rows, whole), separate = new Float32Array(joined.length);
  whole.parts.forEach((part, head) => {
    const own = project(x, rows, part);
    for (let i = 0; i < rows; i++) separate.set(own.subarray(i * size, (i + 1) * size), i * heads * size + head * size);
  });
  return { whole, joined, separate, rows, apart: joined.reduce((most, v, i) => Math.max(most, Math.abs(v - separate[i])), 0) };
}

function splitPanel(host) {
  const heads = blocks[0].heads;
  if (!canFollow() || heads < 2 || !projection("W_query", 0, headSize())) return;
  const ways = { W_query: bothWays("W_query"), W_key: bothWays("W_key"), W_value: bothWays("W_value") };
  const { whole, joined, separate, rows } = ways.W_query, size = headSize(), columns = heads * size;
  const labels = Array.from({ length: columns }, (_, c) => `h${Math.floor(c / size) + 1}·${c % size + 1}`);
  const show = (title, id, values, count, names) => {
    const matrix = { rows: count, columns, values };
    return element("div", { id }, element("h3", {}, title), matrixFigure({ matrix, rowLabels: names, columnLabels: labels, scale: scaleOf(matrix), label: title }, id));
  };
  const w = new Float32Array(whole.inputs * columns);
  for (let i = 0; i < whole.inputs; i++) for (let c = 0; c < columns; c++) w[i * columns + c] = whole.at(i, c);
  const apart = Math.max(...Object.values(ways).map((way) => way.apart));
  fill(host, element("p", { class: "lead" }, `${isWrapper ? "This module keeps a matrix for each head." : "This module keeps one matrix for all heads."} Put side by side the heads’ matrices are the large one, so one product gives what ${heads} products give.`),
    element("div", { class: "routes small" }, show(`W_query, ${heads} heads side by side`, "split-w", w, whole.inputs, numbers(whole.inputs)),
      show("Q by one product, then split", "split-joined", joined, rows, report.tokens), show(`Q by ${heads} products, then joined`, "split-separate", separate, rows, report.tokens)),
    element("p", { class: "note", id: "split-said", "data-apart": String(apart) }, apart === 0 ? "Queries, keys and values are the same to the last bit." : `They differ by at most ${format(apart, 9)}.`));
}

if (live.isModule) labs.push(["leak", "Lab: does the future leak?", leakPanel], ["dropout", "Lab: dropout, drawn again", dropoutPanel], ["split", "Wrapper and weight split: one computation", splitPanel]);
