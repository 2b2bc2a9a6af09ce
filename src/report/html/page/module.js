// A module of the book in a page that computes: its words, weights and options can be changed, and the labs compute by
// the library, too, which has passes of their own for that.

const wordsOf = (step, tokens) => step && { tokens, values: step.values, width: step.columns };

// Returns the parameters as a safetensors file.
function stateFile(parameters) {
  const header = {}, all = Object.entries(parameters);
  let end = 0;
  for (const [name, { shape, values }] of all) header[name] = { dtype: "F32", shape, data_offsets: [end, end += 4 * values.length] };
  const first = beginning(header), bytes = new Uint8Array(first.length + end), numbers = new Float32Array(bytes.buffer, first.length);
  bytes.set(first);
  for (const [name, { values }] of all) numbers.set(values, header[name].data_offsets[0] / 4);
  return bytes;
}
const ownState = () => Object.fromEntries(Object.keys(report.parameters).map((name) => [name, parameter(name)]));

function open(library, change = {}, parameters = ownState(), options = live.now.options) {
  const { unit, ...own } = live.config ?? {};
  library.openModule({ ...own, name: report.module, seed: report.seed ?? 0, flavour: report.flavour, training: report.training, ...options, ...change }, Object.keys(parameters).length ? stateFile(parameters) : undefined);
}
function pass(library, x, source, edits = []) {
  library.runModule(x.values, x.tokens.length, x.width, source?.values, source?.tokens.length, edits);
}

// Numbers of the inputs are changed before the pass, those of steps while it goes on.
function withInputs(words, name) {
  const changed = live.now.edits.filter(({ step }) => step === name);
  if (!words || !changed.length) return words;
  const values = words.values.slice(), rows = words.tokens.length, columns = words.width;
  for (const edit of changed) {
    const { row, column, value, head } = edit, isThere = row < rows && column < columns && head === undefined && value !== undefined;
    expect(isThere, `a number inside ${name}, ${rows} × ${columns}`, JSON.stringify(edit));
    values[row * columns + column] = value === "-inf" ? -Infinity : value;
  }
  return { ...words, values };
}
const editsOfSteps = () => live.now.edits.filter(({ step }) => step !== "inputs" && !(step === "source" && live.given.source));

const mostWords = 128;  // as a page is made for: more would keep it busy for long
function readText(text, given) {
  if (text === given.text) return given;
  const read = live.library.embed(text, given.width);
  expect(read.tokens.length <= mostWords, `a text of at most ${mostWords} words`, read.tokens.length);
  return { ...read, width: given.width };
}

function moduleAnswer() {
  const { text, source: sourceText, options, weights } = live.now;
  try {
    const x = readText(text, live.given), other = live.given.source && readText(sourceText, live.given.source);
    expect(x.tokens.length && other?.tokens.length !== 0, "a text with at least one word", "none");
    setWeights([]);
    open(live.library, {}, ownState(), {});
    pass(live.library, x, other);
    const base = valuesOf(live.library.blocks());
    setWeights(weights);
    open(live.library);
    pass(live.library, withInputs(x, "inputs"), withInputs(other, "source"), editsOfSteps());
    const blocks = live.library.blocks(), health = live.now.edits.length ? [] : live.library.checks();
    blocks.forEach((block, b) => { block.space = live.library.space(b); });
    if (config) Object.assign(config, live.config, options, { scale: options.scale ?? live.config.scale });
    report.seed = options.seed ?? live.seed;
    live.shownNow = live.now;
    showAnswer({ blocks, health, text, tokens: x.tokens, keyTokens: other?.tokens }, base);
    live.drawWeights?.();
    answered();
  } catch (error) {
    setWeights(live.shownNow.weights);
    refused(error.message);
    if (!(error instanceof LibraryError)) throw error;
  } finally {
    document.body.dataset.answered = live.asked;
  }
}

// ---- weights and options ---------------------------------------------------------------------------------------------
function setWeights(changes) {
  for (const name of Object.keys(report.parameters)) parameter(name).values.set(live.weights[name]);
  for (const { name, at, value } of changes) parameter(name).values[at] = value;
}

function weightsPanel() {
  const list = choice({ id: "weight-name", "aria-label": "Which weights", onchange: () => draw() }, Object.keys(report.parameters).map((name) => [name, name]));
  const view = element("div", { id: "weights-view", class: "small" });
  let row = 0, column = 0;
  const pick = (i, j) => {
    [row, column] = [i, j];
    draw();
  };
  const draw = live.drawWeights = () => {
    const { shape, values } = parameter(list.value), columns = shape.at(-1), rows = values.length / columns;
    [row, column] = [clamp(row, rows), clamp(column, columns)];
    const matrix = { rows, columns, values, changed: changedFrom(live.weights[list.value], values) };
    fill(view, matrixView({ matrix, rowLabels: numbers(rows), columnLabels: numbers(columns), scale: scaleOf(matrix), label: list.value, selected: { row, column }, pick }));
  };
  const changed = (value) => ({ name: list.value, at: row * parameter(list.value).shape.at(-1) + column, value });
  const set = (value) => ask({ weights: [...live.now.weights, changed(value)] });
  draw();
  return element("details", { id: "live-weights" }, element("summary", {}, "Weights"), controls(list, setter("weight", "weight", set)), view);
}

// Makes a field for each option that acts on this module; where nothing was changed it has the module's value.
function optionFields() {
  const { linear, mask } = report.kind, now = { ...live.config, seed: live.seed, ...live.now.options };
  const change = (name, value) => {
    const { [name]: _, ...others } = live.now.options;
    ask({ options: value === undefined ? others : { ...others, [name]: value } }, `option ${name}`);
  };
  const option = (name, label, attributes) => numberField(label, `live-${name}`,
    { step: "any", value: now[name] ?? "", ...attributes }, (x) => change(name, x));
  return [linear && option("scale", "scale", { placeholder: "1/√d" }), linear && option("softcap", "softcap", { placeholder: "none", min: 0 }),
    linear && mask && option("window", "window", { placeholder: "all", min: 0, step: 1 }),
    mask && check("live-causal", "causal mask", { checked: now.causal, onchange: ({ target }) => change("causal", target.checked) }),
    linear && report.training && now.dropout > 0 && option("seed", "dropout’s seed", { min: 0, step: 1, value: now.seed ?? 0 })];
}

async function startModule() {
  Object.assign(live, { config: config && { ...config }, seed: report.seed, weights: Object.fromEntries(Object.keys(report.parameters).map((name) => [name, parameter(name).values.slice()])) });
  live.given = { ...wordsOf(stepAt("inputs"), report.tokens), text: report.title };
  if (report.kind.source) live.given.source = { ...wordsOf(stepAt("source") ?? stepAt("inputs"), report.keyTokens), text: report.keyTokens.join(" ") };
  live.begun = live.shownNow = live.now = { ...live.now, source: live.given.source?.text };
  livePanel(live.given.source && liveText("live-source", "The other text, of keys and values", live.now.source, ({ target }) => ask({ source: target.value, edits: [] }, "typed")),
    element("div", { class: "controls", id: "live-options" }, optionFields()), Object.keys(report.parameters).length > 0 && weightsPanel());
  const code = await compiled(bytesOf(byId("engine").textContent));
  Object.assign(live, { code, library: new Library(code), drops: new Library(code), ready: true });
  libraryOpen();
  document.body.dataset.answered = live.asked;
  begin();
}
(live.isModule ? startModule : startModel)().catch(recordedOnly);
