// The labs of a module: passes of a library of their own, with a changed word or with other draws of dropout, and one
// projection against several.

const canFollow = () => !report.kind.recurrent && report.module !== "average";

// ---- whether a changed word can be noticed before it -----------------------------------------------------------------
// The outputs of a pass on these inputs. A module without a mask of its own has the scores of later words changed.
function outputsOf(values, causal) {
  const own = report.kind.mask, scores = openBlock().softmaxInput(), { rows, columns } = scores;
  const hidden = causal && !own ? Array.from(scores.values, (_, at) => ({ step: scores.name, head: Math.floor(at / rows / columns), row: Math.floor(at / columns) % rows, column: at % columns, value: "-inf" })) : [];
  open(lab(), { training: false, ...(own && { causal }) });
  pass(lab(), { ...wordsOf(stepAt("inputs"), report.tokens), values }, undefined, hidden.filter(({ row, column }) => column > row));
  const { steps } = lab().blocks().blocks[0], step = (name) => steps.find((one) => one.name === name);
  return (step("output") ?? step("merged") ?? step("context")).values;
}

// The outputs when row `changed` of the inputs moves by `amount`: of each word its row, and its largest change.
function leakTest(changed, amount, causal) {
  const { values: before, columns: width } = stepAt("inputs"), after = before.map((x, at) => (Math.floor(at / width) === changed ? x + amount : x));
  const was = outputsOf(before, causal), output = outputsOf(after, causal), columns = output.length / report.tokens.length;
  return report.tokens.map((_, i) => {
    const rowOf = (all) => all.subarray(i * columns, (i + 1) * columns);
    return { row: rowOf(output), moved: apart(rowOf(output), rowOf(was)) };
  });
}

function leakSentence(changed, leaks, masked) {
  if (changed === 0) return "No word comes before the first.";
  const before = `before “${word(report.tokens[changed])}”`;
  if (leaks === 0) return `No leak: the ${changed} output${changed === 1 ? "" : "s"} ${before} did not move by a single bit.`;
  const why = isCausal() && !masked ? "That is what a forgotten mask does." : "This module has no mask: every word sees the future, as an encoder’s may and a language model’s must not.";
  return `Leak: ${leaks} of ${changed} outputs ${before} moved. ${why}`;
}

function leakPanel(host) {
  if (!canFollow() || stepAt("source") || report.tokens.length < 2) return;
  const oninput = () => draw();
  const chosen = choice({ id: "leak-word", oninput }, report.tokens.map((text, i) => [i, numberedWord(text, i)]), report.tokens.length - 1);
  const amount = element("input", { type: "range", id: "leak-amount", min: -2, max: 2, step: 0.05, value: 1, oninput }), amountText = element("output", { class: "number" });
  const mask = check("causal mask", { id: "leak-mask", checked: isCausal(), oninput });
  const view = element("div", { class: "scroll" }), said = element("p", { class: "note", id: "leak-said", "aria-live": "polite" });
  let shown = [];
  const draw = () => {
    const changed = Number(chosen.value), masked = mask.firstChild.checked, found = leakTest(changed, Number(amount.value), masked), most = Math.max(...found.map(({ moved }) => moved), 1e-30);
    const place = (i) => (i < changed ? "before" : i === changed ? "changed" : "after"), leaks = found.slice(0, changed).filter(({ moved }) => moved !== 0).length;
    shown = found.map(({ moved }, i) => [report.tokens[i], place(i), moved]);
    amountText.textContent = `${amount.value > 0 ? "+" : ""}${format(Number(amount.value), 2)}`;
    said.classList.toggle("leaks", leaks > 0);
    said.dataset.leaks = String(leaks);
    said.textContent = leakSentence(changed, leaks, masked);
    fill(view, table({ class: "plain" }, unseen("How far each word’s output moved"), ["word", "", "largest change of its output"].map((name, i) => element("th", { scope: "col", class: i === 2 ? "number" : null }, name)),
      found.slice(0, 128).map(({ row, moved }, i) => element("tr", { class: i === changed ? "on" : null, "data-word": i, "data-output": Array.from(row, exactly).join(" ") }, element("th", { scope: "row" }, token(report.tokens[i])),
        element("td", { class: "quiet" }, place(i)), barCell(moved, moved / most, { digits: 6 })))));
  };
  fill(host, lead("Change one word’s embedding, and the page computes every output anew with the module’s own weights. With a causal mask nothing before that word may move."),
    controls(field("change", chosen), field("by", amount), amountText, mask), said, view,
    exports({ name: () => "leak", title: () => "How far each word’s output moved", table: null, csv: () => [["word", "place", "largest change"], ...shown] }),
    stepAt("dropped") && quiet("Computed without dropout."));
  draw();
}

// ---- dropout, drawn again and again, as PyTorch draws it ---------------------------------------------------------------
// What a pass in train mode leaves of the weights, of every head.
function droppedWeights() {
  pass(live.drops, wordsOf(stepAt("inputs"), report.tokens), wordsOf(stepAt("source"), report.keyTokens), editsOfSteps().filter(({ step }) => !step.endsWith("dropped")));
  const { rows, columns } = stepAt("weights"), plane = rows * columns, steps = live.drops.steps();
  const all = (name) => steps.filter((step) => step.name === name || step.name.endsWith(`.${name}`)).flatMap(({ values }) => Array.from({ length: values.length / plane }, (_, head) => values.slice(head * plane, (head + 1) * plane)));
  const dropped = all("dropped");
  return dropped.length ? dropped : all("weights");
}
// The mean of as many draws as take about a second.
function meanOfDraws(heads, size) {
  const draws = Math.max(20, Math.min(1000, Math.floor(4e6 / (size * heads)))), sums = Array.from({ length: heads }, () => new Float64Array(size));
  for (let draw = 0; draw < draws; draw++) droppedWeights().forEach((left, head) => left.forEach((w, i) => { sums[head][i] += w; }));
  return { draws, heads: sums.map((sum) => Float32Array.from(sum, (x) => x / draws)) };
}

function dropoutPanel(host) {
  const step = stepAt("weights");
  if (!report.kind.linear || report.kind.recurrent || !step.rows || !step.columns) return;
  const oninput = () => restart(), flavour = choice({ id: "dropout-flavour", oninput }, [["mkl", "mkl: Linux, Intel"], ["native", "native: others"]], report.flavour);
  const p = element("input", { type: "range", id: "dropout-p", min: 0, max: 1, step: 0.05, value: config?.dropout || 0.5, oninput }), shownP = element("output", { class: "number" });
  const seed = element("input", { type: "number", id: "dropout-seed", min: 0, max: 4294967295, step: 1, value: report.seed ?? 123, oninput });
  const view = element("div", { class: "small" }), sums = element("p", { class: "quiet", id: "dropout-sums" }), said = element("p", { class: "note", id: "dropout-said", "aria-live": "polite" });
  let count = 0, shown, mean;
  const seedValue = () => clamp(Number(seed.value), 2 ** 32);
  const restart = () => {
    open(live.drops, { dropout: Number(p.value), training: true, seed: seedValue(), flavour: flavour.value });
    count = 0;
    draw();
  };
  const draw = () => {
    [count, shown, mean] = [count + 1, droppedWeights(), undefined];
    show();
  };
  const many = () => {
    mean = meanOfDraws(blocks[0].heads, step.rows * step.columns);
    count += mean.draws;
    show();
  };
  const show = () => {
    const values = (mean?.heads ?? shown)[state.head], matrix = { rows: step.rows, columns: step.columns, values, masked: blocks[0].masked(state.head) };
    const rowSums = Array.from({ length: step.rows }, (_, i) => values.subarray(i * step.columns, (i + 1) * step.columns).reduce((a, b) => a + b, 0));
    shownP.textContent = format(Number(p.value), 2);
    fill(view, matrixFigure({ matrix, rowLabels: step.rowLabels, columnLabels: step.columnLabels, scale: stepScale(step, matrix), label: `Weights after dropout, ${headName()}`, ...pickedPair() }, `dropout-head-${state.head + 1}`));
    sums.textContent = `Row sums, 1 before: ${rowSums.slice(0, 12).map((x) => format(x, 3)).join("  ")}${rowSums.length > 12 ? " …" : ""}`;
    sums.dataset.sums = rowSums.join(" ");
    said.textContent = mean ? `The mean of ${mean.draws} draws: at most ${format(apart(values, step.matrix(state.head).values))} from the weights. Dropout changes each draw, not the expectation.`
      : `Draw ${count} is what pass ${count} of this module in train mode drops, with seed ${seedValue()} and p = ${shownP.textContent}. What is kept is multiplied by 1/(1 − p).`;
  };
  fill(host, lead("For one seed PyTorch drops other weights on other machines. Both of its ways are here, number for number."),
    controls(field("flavour", flavour), field("p", p), shownP, field("seed", seed)),
    controls(button("dropout-again", "Draw again", draw), button("dropout-first", "First draw", restart), button("dropout-mean", "Mean of many draws", many)), said, view, sums);
  restart();
  onSelection(show);
}

// ---- one large projection split into heads, or a small one for each head: the same numbers ------------------------------
// The heads' matrices side by side: what MultiHeadAttention holds as W_query.
function sideBySide(parts, size) {
  const of = (c) => parts[Math.floor(c / size)];
  return { inputs: parts[0].inputs, at: (i, c) => of(c).at(i, c % size), bias: (c) => of(c).bias?.(c % size) ?? 0 };
}

// Rows of x by the first columns of a projection: the queries of a head of its own.
function project(x, rows, p, columns) {
  const weight = Float32Array.from({ length: columns * p.inputs }, (_, at) => p.at(at % p.inputs, Math.floor(at / p.inputs))), bias = Float32Array.from({ length: columns }, (_, c) => p.bias?.(c) ?? 0);
  const state = ["W_query", "W_key", "W_value"].flatMap((name) => [[`${name}.weight`, { shape: [columns, p.inputs], values: weight }], [`${name}.bias`, { shape: [columns], values: bias }]]);
  lab().openModule({ name: "self-v2", d_in: p.inputs, d_out: columns, qkv_bias: true }, stateFile(Object.fromEntries(state)));
  lab().runModule(x, rows, p.inputs);
  return lab().steps().find(({ name }) => name === "queries").values.slice();
}

function bothWays(which, heads, size) {
  const asks = which === "W_query", { values: x, rows } = (asks ? undefined : stepAt("source")) ?? stepAt("inputs");
  const parts = Array.from({ length: heads }, (_, head) => projection(which, head, size)), whole = sideBySide(parts, size);
  const joined = project(x, rows, whole, heads * size), separate = new Float32Array(joined.length);
  parts.forEach((part, head) => {
    const own = project(x, rows, part, size);
    for (let i = 0; i < rows; i++) separate.set(own.subarray(i * size, (i + 1) * size), (i * heads + head) * size);
  });
  return { whole, joined, separate };
}

function splitPanel(host) {
  const heads = blocks[0].heads, size = headSize(), columns = heads * size;
  if (!canFollow() || heads < 2 || !projection("W_query", 0, size)) return;
  const [{ whole, joined, separate }, ...others] = ["W_query", "W_key", "W_value"].map((which) => bothWays(which, heads, size));
  const most = Math.max(apart(joined, separate), ...others.map((way) => apart(way.joined, way.separate)));
  const columnLabels = Array.from({ length: columns }, (_, c) => `h${Math.floor(c / size) + 1}·${c % size + 1}`);
  const show = (title, id, values, rowLabels) => labFigure(title, id, { rows: values.length / columns, columns, values }, { rowLabels, columnLabels });
  const w = Float32Array.from({ length: whole.inputs * columns }, (_, at) => whole.at(Math.floor(at / columns), at % columns));
  fill(host, lead(`${isWrapper ? "This module keeps a matrix for each head." : "This module keeps one matrix for all heads."} Put side by side the heads’ matrices are the large one, so one product gives what ${heads} products give.`),
    element("div", { class: "routes small" }, show(`W_query, ${heads} heads side by side`, "split-w", w, numbers(whole.inputs)),
      show("Q by one product, then split", "split-joined", joined, report.tokens), show(`Q by ${heads} products, then joined`, "split-separate", separate, report.tokens)),
    element("p", { class: "note", id: "split-said", "data-apart": String(most) }, most === 0 ? "Queries, keys and values are the same to the last bit." : `They differ by at most ${format(most, 9)}.`));
}

if (live.isModule) labs.push(["leak", "Lab: does the future leak?", leakPanel], ["dropout", "Lab: dropout, drawn again", dropoutPanel], ["split", "Wrapper and weight split: one computation", splitPanel]);
