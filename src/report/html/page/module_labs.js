// The labs of a module: passes of a library of their own, with a changed word or with other draws of dropout, and one
// projection against several.

const canFollow = () => !report.kind.recurrent && report.module !== "average";

// ---- whether a changed word can be noticed before it -----------------------------------------------------------------
// The outputs of a pass on these inputs, a row a word. A module without a mask of its own has the scores of later words changed.
function outputsOf(values, causal) {
  const own = report.kind.mask, { name, rows, columns, planes } = openBlock().softmaxInput(), hidden = [];
  if (causal && !own) {
    for (let head = 0; head < planes; head++) future(rows, columns).forEach((yes, at) => yes && hidden.push({ step: name, head, row: Math.floor(at / columns), column: at % columns, value: "-inf" }));
  }
  open(lab(), { training: false, ...(own && { causal }) });
  pass(lab(), { ...wordsOf(stepAt("inputs"), report.tokens), values }, undefined, hidden);
  const { steps } = lab().blocks()[0], found = ["output", "merged", "context"].map((name) => steps.find((one) => one.name === name)).find(Boolean);
  return rowsOf(found.values, found.values.length / report.tokens.length);
}

// The outputs when row `changed` of the inputs moves by `amount`: of each word its row, and its largest change.
function leakTest(changed, amount, causal) {
  const { values, columns: width } = stepAt("inputs"), after = values.map((x, at) => (Math.floor(at / width) === changed ? x + amount : x));
  const was = outputsOf(values, causal);
  return outputsOf(after, causal).map((row, i) => ({ row, moved: apart(row, was[i]) }));
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
  const oninput = () => draw(), chosen = choice({ id: "leak-word", oninput }, report.tokens.map((text, i) => [i, numberedWord(text, i)]), report.tokens.length - 1);
  const amount = range("leak-amount", -2, 2, 0.05, { value: 1, oninput }), amountText = output(), mask = check("leak-mask", "causal mask", { checked: isCausal(), oninput });
  const view = element("div", { class: "scroll" }), said = saidNote("leak-said");
  let shown = [];
  const draw = () => {
    const changed = Number(chosen.value), masked = mask.firstChild.checked, found = leakTest(changed, Number(amount.value), masked), most = Math.max(...found.map(({ moved }) => moved), 1e-30);
    const place = (i) => (i < changed ? "before" : i === changed ? "changed" : "after"), leaks = found.slice(0, changed).filter(({ moved }) => moved !== 0).length;
    shown = found.map(({ moved }, i) => [report.tokens[i], place(i), moved]);
    amountText.textContent = `${amount.value > 0 ? "+" : ""}${format(Number(amount.value), 2)}`;
    said.classList.toggle("leaks", leaks > 0);
    said.dataset.leaks = String(leaks);
    said.textContent = leakSentence(changed, leaks, masked);
    fill(view, table({ class: "plain" }, unseen("How far each word’s output moved"), ["word", "", "largest change of its output"], found.slice(0, 128).map(({ row, moved }, i) =>
      namedRow({ class: [i === changed && "on"], "data-word": i, "data-output": Array.from(row, exactly).join(" ") }, token(report.tokens[i]), element("td", { class: "quiet" }, place(i)), barCell(moved, moved / most, { digits: 6 })))));
  };
  fill(host, lead("Change one word’s embedding, and the page computes every output anew with the module’s own weights. With a causal mask nothing before that word may move."),
    controls(field("change", chosen), field("by", amount), amountText, mask), said, view,
    exports({ name: () => "leak", title: () => "How far each word’s output moved", table: null, csv: () => [["word", "place", "largest change"], ...shown] }),
    stepAt("dropped") && quiet("Computed without dropout."));
  draw();
}

// ---- dropout, drawn again and again, as PyTorch draws it ---------------------------------------------------------------
// Returns what a pass in train mode leaves of every head's weights.
function droppedWeights() {
  pass(live.drops, wordsOf(stepAt("inputs"), report.tokens), wordsOf(stepAt("source"), report.keyTokens), editsOfSteps().filter(({ step }) => !step.endsWith("dropped")));
  const { rows, columns } = stepAt("weights"), steps = live.drops.steps();
  const all = (wanted) => steps.filter(({ name }) => name.split(".").at(-1) === wanted).flatMap(({ values }) => rowsOf(values.slice(), rows * columns));
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
  const step = stepAt("weights"), { rows, columns, rowLabels, columnLabels } = step;
  if (!report.kind.linear || report.kind.recurrent || !rows || !columns) return;
  const oninput = () => restart(), flavour = choice({ id: "dropout-flavour", oninput }, [["mkl", "mkl: Linux, Intel"], ["native", "native: others"]], report.flavour);
  const p = range("dropout-p", 0, 1, 0.05, { value: config?.dropout || 0.5, oninput }), shownP = output();
  const seed = input("dropout-seed", "number", { min: 0, max: 4294967295, step: 1, value: report.seed ?? 123, oninput }), seedValue = () => clamp(Number(seed.value), 2 ** 32);
  const view = element("div", { class: "small" }), sums = element("p", { class: "quiet", id: "dropout-sums" }), said = saidNote("dropout-said");
  let count, shown, mean;
  const draw = () => {
    [count, shown, mean] = [count + 1, droppedWeights(), undefined];
    show();
  };
  const restart = () => {
    open(live.drops, { dropout: Number(p.value), training: true, seed: seedValue(), flavour: flavour.value });
    count = 0;
    draw();
  };
  const many = () => {
    mean = meanOfDraws(blocks[0].heads, rows * columns);
    count += mean.draws;
    show();
  };
  const show = () => {
    const values = (mean?.heads ?? shown)[state.head], matrix = { rows, columns, values, masked: blocks[0].masked(state.head) };
    const rowSums = rowsOf(values, columns).map((row) => row.reduce((a, b) => a + b, 0));
    shownP.textContent = format(Number(p.value), 2);
    fill(view, matrixFigure({ matrix, rowLabels, columnLabels, scale: stepScale(step, matrix), label: `Weights after dropout, ${headName()}`, ...pickedPair() }, `dropout-head-${state.head + 1}`));
    sums.textContent = `Row sums, 1 before: ${rowSums.slice(0, 12).map((x) => format(x, 3)).join("  ")}${rowSums.length > 12 ? " …" : ""}`;
    sums.dataset.sums = rowSums.join(" ");
    said.textContent = mean ? `The mean of ${mean.draws} draws: at most ${format(apart(values, step.matrix(state.head).values))} from the weights. Dropout changes each draw, not the expectation.`
      : `Draw ${count} is what pass ${count} of this module in train mode drops, with seed ${seedValue()} and p = ${shownP.textContent}. What is kept is multiplied by 1/(1 − p).`;
  };
  fill(host, lead("For one seed PyTorch drops other weights on other machines. Both of its ways are here, number for number."),
    controls(field("flavour", flavour), field("p", p), shownP, field("seed", seed)),
    controls(button("dropout-again", "Draw again", draw), button("dropout-first", "First draw", restart), button("dropout-mean", "Mean of many draws", many)), said, view, sums);
  restart();
  return show;
}

// ---- one large projection split into heads, or a small one for each head: the same numbers ------------------------------
// The heads' matrices side by side: what MultiHeadAttention holds as W_query.
function sideBySide(parts, size) {
  const of = (c) => parts[Math.floor(c / size)];
  return { inputs: parts[0].inputs, at: (i, c) => of(c).at(i, c % size), bias: (c) => of(c).bias?.(c % size) ?? 0 };
}

// Rows of x by the first columns of a projection: the queries of a head of its own.
function project(x, rows, p, columns) {
  const weight = { shape: [columns, p.inputs], values: Float32Array.from({ length: columns * p.inputs }, (_, at) => p.at(at % p.inputs, Math.floor(at / p.inputs))) };
  const bias = { shape: [columns], values: Float32Array.from({ length: columns }, (_, c) => p.bias?.(c) ?? 0) };
  const state = ["W_query", "W_key", "W_value"].flatMap((name) => [[`${name}.weight`, weight], [`${name}.bias`, bias]]);
  lab().openModule({ name: "self-v2", d_in: p.inputs, d_out: columns, qkv_bias: true }, stateFile(Object.fromEntries(state)));
  lab().runModule(x, rows, p.inputs);
  return lab().steps().find(({ name }) => name === "queries").values.slice();
}

function bothWays(which, heads, size) {
  const { values: x, rows } = (which !== "W_query" && stepAt("source")) || stepAt("inputs");
  const parts = Array.from({ length: heads }, (_, head) => projection(which, head, size)), whole = sideBySide(parts, size);
  const joined = project(x, rows, whole, heads * size), separate = new Float32Array(joined.length);
  parts.forEach((part, head) => rowsOf(project(x, rows, part, size), size).forEach((row, i) => separate.set(row, (i * heads + head) * size)));
  return { whole, joined, separate };
}

function splitPanel(host) {
  const heads = blocks[0].heads, size = headSize(), columns = heads * size;
  if (!canFollow() || heads < 2 || !projection("W_query", 0, size)) return;
  const ways = ["W_query", "W_key", "W_value"].map((which) => bothWays(which, heads, size)), [{ whole, joined, separate }] = ways;
  const most = Math.max(...ways.map((way) => apart(way.joined, way.separate)));
  const columnLabels = Array.from({ length: columns }, (_, c) => `h${Math.floor(c / size) + 1}·${c % size + 1}`);
  const show = (title, id, values, rowLabels) => labFigure(title, id, { rows: values.length / columns, columns, values }, { rowLabels, columnLabels });
  const w = Float32Array.from({ length: whole.inputs * columns }, (_, at) => whole.at(Math.floor(at / columns), at % columns));
  fill(host, lead(`${isWrapper ? "This module keeps a matrix for each head." : "This module keeps one matrix for all heads."} Put side by side the heads’ matrices are the large one, so one product gives what ${heads} products give.`),
    element("div", { class: "routes small" }, show(`W_query, ${heads} heads side by side`, "split-w", w, numbers(whole.inputs)),
      show("Q by one product, then split", "split-joined", joined, report.tokens), show(`Q by ${heads} products, then joined`, "split-separate", separate, report.tokens)),
    element("p", { class: "note", id: "split-said", "data-apart": String(most) }, most === 0 ? "Queries, keys and values are the same to the last bit." : `They differ by at most ${format(most, 9)}.`));
}

if (live.isModule) live.labs.push(["leak", "Lab: does the future leak?", leakPanel], ["dropout", "Lab: dropout, drawn again", dropoutPanel], ["split", "Wrapper and weight split: one computation", splitPanel]);
