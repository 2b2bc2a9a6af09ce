// Lab: dropout drawn again and again, exactly as PyTorch would draw it.

function dropoutOnce(weights, keep, p) {
  const factor = p === 1 ? 0 : Math.fround(1 / (1 - p));
  return weights.map((w, i) => (keep[i] ? w * factor : 0));
}

function dropoutPanel(host) {
  const step = blocks[0].step("weights");
  if (report.kind?.recurrent || blocks.length !== 1 || !step.exact || !step.rows || !step.columns) return;
  const field = (name, input) => element("label", { class: "field" }, name, input);
  const flavour = element("select", { id: "dropout-flavour" }, element("option", { value: "mkl" }, "mkl: Linux, Intel"), element("option", { value: "native" }, "native: others"));
  flavour.value = report.flavour === "native" ? "native" : "mkl";
  const p = element("input", { type: "range", id: "dropout-p", min: 0, max: 1, step: 0.05, value: config?.dropout || 0.5 }), shownP = element("output", { class: "number" });
  const seed = element("input", { type: "number", id: "dropout-seed", min: 0, max: 4294967295, step: 1, value: report.seed ?? 123 });
  const view = element("div", { class: "small" }), sums = element("p", { class: "quiet", id: "dropout-sums" }), said = element("p", { class: "note", id: "dropout-said", "aria-live": "polite" });
  let passes, kept, mean = null;
  const weights = () => step.matrix(state.head).values;
  const seedValue = () => Math.min(Math.max(Math.trunc(Number(seed.value)) || 0, 0), 4294967295);
  const restart = () => { passes = new DropoutPasses(seedValue(), flavour.value, Number(p.value)); draw(passes.next()); };
  const draw = (next) => { kept = next; mean = null; show(); };
  const show = () => {
    const chance = Number(p.value), values = mean ? mean.values(state.head) : dropoutOnce(weights(), kept[state.head], chance);
    const rowSums = Array.from({ length: step.rows }, (_, i) => values.subarray(i * step.columns, (i + 1) * step.columns).reduce((a, b) => a + b, 0));
    shownP.textContent = format(chance, 2);
    const matrix = { rows: step.rows, columns: step.columns, values, masked: blocks[0].masked(state.head) };
    fill(view, matrixFigure({ matrix, rowLabels: step.rowLabels, columnLabels: step.columnLabels,
      scale: stepScale(step, matrix), label: `Weights after dropout, ${headName()}`, selected: { row: state.query, column: state.key }, pick: (query, key) => select({ query, key }) }, `dropout-head-${state.head + 1}`));
    sums.textContent = `Row sums, 1 before: ${rowSums.slice(0, 12).map((x) => format(x, 3)).join("  ")}${rowSums.length > 12 ? " …" : ""}`;
    sums.dataset.sums = rowSums.join(" ");
    const apart = values.reduce((most, x, i) => Math.max(most, Math.abs(x - weights()[i])), 0);
    said.textContent = mean ? `The mean of ${mean.count} draws: at most ${format(apart)} from the weights. Dropout changes each draw, not the expectation.`
      : `Draw ${passes.pass}${config ? ` is what pass ${passes.pass} of this module in train mode drops, with seed ${seedValue()} and p = ${format(chance, 2)}` : ""}. What is kept is multiplied by 1/(1 − p).`;
    said.dataset.apart = String(apart);
  };
  const many = () => {
    const rounds = Math.max(20, Math.min(1000, Math.floor(4e6 / (step.rows * step.columns * blocks[0].heads * Math.max(report.batch, 1)))));
    const counts = Array.from({ length: blocks[0].heads }, () => new Uint32Array(step.rows * step.columns)), chance = Number(p.value);
    for (let round = 0; round < rounds; round++) {
      passes.next().forEach((keep, head) => { for (let i = 0; i < keep.length; i++) counts[head][i] += keep[i]; });
    }
    const factor = chance === 1 ? 0 : 1 / (1 - chance);
    mean = { count: rounds, values: (head) => step.matrix(head).values.map((w, i) => w * factor * counts[head][i] / rounds) };
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
