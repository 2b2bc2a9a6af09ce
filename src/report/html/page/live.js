// A page that computes: its model or module reads what is typed or continued, with numbers changed and heads switched
// off, and every panel follows. The library does it: a model's in a worker, a module's in module.js.

const asMade = (text) => ({ text, source: "", ids: undefined, edits: [], options: {}, weights: [] });
const live = {
  now: asMade(report.title), snippets: report.snippets, past: [], asked: 0, shown: 0, notice: "", isModule: !byId("model"),
  labs: [], sampling: [1, 0, 1], mostAtOnce: 2e8,  // tokens times weights of a pass that takes a tenth of a second
};

// ---- the answer takes the place of what was recorded ---------------------------------------------------------------
function renew(block, { steps, space, askSpace, scores, sinks, causal }, base, off) {
  Object.assign(block, { packed: undefined, masks: undefined, scores, sinks, causal, space, askSpace, off });
  block.steps = steps.map(({ shape, values, ...step }) => {
    const before = base?.get(step.name), moved = before !== values && before?.length === values.length;
    return Object.assign(new Step({ ...step, data: { f32: "", shape } }, block), { decoded: values, before: moved ? before : undefined });
  });
}
// Where its words lie is computed once: behind the answer, or when another layer is selected.
function askSpace() {
  currentBlock().askSpace = undefined;
  live.worker.postMessage({ number: live.shown, space: state.block });
}
// The labs compute by the library, too.
function libraryOpen() {
  labs.push(...live.labs);
  renewBelow();
}
function restHeard({ at, space, health = report.health }) {
  blocks[at].space = space;
  report.health = health;
  header(byId("about"));
  renewBelow();
}

const valuesOf = (found) => found.map(({ steps }) => new Map(steps.map(({ name, values }) => [name, values])));
function showAnswer(answer, base) {
  Object.assign(report, { tokens: answer.tokens, keyTokens: answer.keyTokens ?? answer.tokens, exact: true, health: answer.health ?? [],
    snippets: altered() || live.file ? [] : live.snippets });  // code that anyone may run does not have what was changed here
  blocks.forEach((block, b) => renew(block, { askSpace: b === answer.shown ? undefined : askSpace, ...answer.blocks[b] }, base?.[b], headsOff().filter(({ layer }) => layer + 1 === layerNumber(b)).map(({ head }) => head)));
  document.querySelector("h1").textContent = answer.text.length > mostTitle ? `${answer.text.slice(0, mostTitle)}…` : answer.text;
  header(byId("about"));
  Object.assign(state, tidied({ ...state, ...live.selected }));  // another model may have fewer layers
  drawPanels();
  live.selected = undefined;
  showEdits();
}
const mostTitle = 2000;  // characters: a heading of megabytes is laid out for a minute at each answer
const altered = ({ edits, at, options, weights } = live.now) => edits.length > 0 || at !== undefined || weights.length > 0 || Object.keys(options).length > 0;

// ---- what is asked ---------------------------------------------------------------------------------------------------
// Each change can be undone; letters that are typed one after the other are one change.
function ask(change = {}, kind, more) {
  if (Object.keys(change).length && (!kind || live.lastKind !== kind)) live.past.push(live.now);
  live.lastKind = kind;
  live.now = { ...live.now, ...change };
  live.asked++;
  share();
  return live.code && (live.isModule ? moduleAnswer() : askModel(more));
}
function askModel(more) {
  const { source: other, ...now } = live.now, [temperature, topK, topP] = live.sampling;
  live.worker.postMessage({ number: live.asked, ...now, block: state.block, other, pooling: byId("live-pooling").value, ...more,
    sampling: { temperature, topK, topP, most: 24, seed: Math.floor(Math.random() * 2 ** 31) } });
}
function undo() {
  if (!live.past.length) return said("Nothing was changed.");
  live.now = live.past.pop();
  live.lastKind = "undone";
  showFields();
  ask();
}
// Fields that are typed into show what is now.
function showFields() {
  for (const [id, name] of [["live-text", "text"], ["live-source", "source"]]) if (byId(id)) byId(id).value = live.now[name];
  if (live.isModule) fill(byId("live-options"), optionFields());
}

// Changed numbers are of other words when another text is read.
const headsOff = () => live.now.edits.filter(({ step }) => !step);
const typed = (text) => ask({ text, ids: undefined, edits: headsOff() }, "typed");
// The text goes on with a token: the one that was drawn, or one that was chosen. Its text may not be all of a character.
function proceed({ id, token: text } = {}) {
  if (id === undefined) return;
  live.drawn = {};
  const ids = [...live.ids, id], edits = headsOff();
  ask({ text: live.now.text + text, ids, edits }, undefined, { ahead: live.going && !edits.length && ids.length * live.size.weights > live.mostAtOnce });
  const box = byId("live-text");
  box.value = live.now.text;
  box.scrollTop = box.scrollHeight;  // what was written last is seen
}

const samePlace = (a, b) => ["layer", "step", "head", "row", "column"].every((name) => a[name] === b[name]);
const without = (edit) => live.now.edits.filter((one) => !samePlace(one, edit));
const edited = (edit) => ask({ edits: [...without(edit), edit] });
function headToggled() {
  const edit = { layer: layerNumber(state.block) - 1, head: state.head }, others = without(edit), wasOff = others.length < live.now.edits.length;
  wasOff ? ask({ edits: others }) : edited(edit);
}
// The selected place of a step, as an edit names it.
function placeOf(step) {
  const row = step.ofKeys ? state.key : state.query, column = step.pairs ? state.key : state.column;
  const { label } = currentBlock(), ofBlock = label ? `${label}.${step.name}` : step.name;
  const whole = live.isModule && isWrapper && step.kind !== "tokens" ? `heads.${state.head}.${step.name}` : ofBlock;
  return { step: whole, ...(step.kind === "tokens" || whole.startsWith("heads.") ? {} : { head: step.planeOf(state.head) }), row, column };
}
// "scores, layer 2, head 3 at 6, 4 = 4.5"
function labelOf({ layer, head, step, row, column, value, from }) {
  if (!step) return `layer ${layer + 1}, head ${head + 1} off`;
  const b = blocks.findIndex(({ label }) => label && step.startsWith(`${label}.`)), own = /^heads\.(\d+)\./.exec(step)?.[1] ?? head;
  const where = named(b >= 0 && layerName(b), own !== undefined && `head ${Number(own) + 1}`);
  const name = step.split(".").at(-1), ofScores = blocks[Math.max(b, 0)].step(name)?.kind === "scores";
  const become = from ? "seen" : ofScores && value === "-inf" && "masked";
  if (become) return `${named(where)}: key ${column + 1} of query ${row + 1} ${become}`;
  return `${named(name, where)} at ${row + 1}, ${column + 1} = ${value}`;
}
const isNumber = (x) => Number.isFinite(x) && Math.abs(x) <= 1e38;  // The library takes no larger ones.
const numberOf = (text) => (/^\s*[-−](inf|∞)\s*$/.test(text) ? "-inf"
  : [text.trim() && Number(text.replace("−", "-"))].find(isNumber));
// A field whose number is handed on, undefined where it is empty. Others are refused, not cut to what is taken.
function numberField(label, id, { min = -1e38, max = 1e38, ...more }, take) {
  const whole = more.step === 1, most = whole ? 2 ** 31 - 1 : max, kind = whole ? "whole number" : "number";
  return field(label, input(id, "number", { min, max: most, ...more, oninput: ({ target: { value } }) => {
    const x = Number(value), empty = value === "", fits = x >= min && x <= most && !(whole && x % 1);
    if (empty ? !more.required : fits) return take(empty ? undefined : x);
    return said(`[${label}] expected a ${kind} from ${min} to ${most}; found ${value || "none"}`);
  } }));
}
// A field for what a selected number becomes; `take` has it once it is set.
function setter(id, what, take, more = "") {
  const text = input(`${id}-value`, "text", { size: 8, "aria-label": `The selected ${what} becomes` });
  const set = (value) => (isNumber(value) || (value === "-inf" && more) ? take(value)
    : said(`A number is needed, from -1e38 to 1e38${more}.`));
  return [field(`the selected ${what} becomes`, text), button(`${id}-set`, "Set", () => set(numberOf(text.value)))];
}
// Hides the selected key from the selected query, in the scores that softmax takes, or lets it be seen again.
function maskToggled() {
  const block = currentBlock(), step = block.softmaxInput();
  if (!step) return said("This layer has no scores to mask.");
  const hidden = step.at(state.head, state.query, state.key) === -Infinity, before = block.before(step.name);
  const place = { ...placeOf(step), row: state.query, column: state.key };
  if (!hidden) return edited({ ...place, value: "-inf" });
  if (!before || without(place).length < live.now.edits.length) return ask({ edits: without(place) });
  edited({ ...place, from: place.step.slice(0, -step.name.length) + before.name });
}

const said = (text) => { byId("live-said").textContent = text; };
const recordedOnly = ({ message }) => said(`This page shows the recorded pass: ${message}`);

// ---- the panel -------------------------------------------------------------------------------------------------------
const liveText = (id, label, text, oninput) => element("textarea", { id, rows: 2, spellcheck: "false", dir: "auto", "aria-label": label, placeholder: label, oninput }, text);

function livePanel(...more) {
  const skip = button("skip", "Skip to the steps", () => document.querySelector("#overview [tabindex='0'], #strip [tabindex='0']").focus(), { class: "unseen" });
  byId("panels").prepend(element("div", { class: "page" }, element("section", { class: "panel", id: "live", "aria-label": "Type" }, skip,
    liveText("live-text", `Text that the ${live.isModule ? "module" : "model"} reads`, live.now.text, (event) => typed(event.target.value)), more,
    controls(setter("edit", "number", (value) => edited({ ...placeOf(currentStep()), value }), ", or -inf"),
      button("edit-mask", "Mask or unmask this key", maskToggled), check("edit-click", live.isModule ? "a click masks" : "a click masks, and in the map switches a head off"),
      !live.isModule && button("edit-head", "Switch this head off or on", headToggled), button("edit-undo", "Undo", undo), button("tour", "Tour", startTour)),
    element("div", { id: "live-edits", class: "controls" }), element("p", { class: "quiet", id: "live-said", role: "status" }))));
  // The click selects the cell or head first, and draws the matrix anew.
  document.addEventListener("click", ({ target }) => {
    const act = target.closest("#stage-matrix :is(.cell, .frame)") ? currentStep().pairs && maskToggled : !live.isModule && target.closest("#overview td button, #heads-grid button") && headToggled;
    if (act && byId("edit-click").checked) setTimeout(act);
  }, true);
}

function showEdits() {
  const { edits } = live.now, restoreFocus = focusPlace();
  fill(byId("live-edits"), edits.map((edit) => button(null, `${labelOf(edit)} ×`, () => ask({ edits: without(edit) }), { title: "Take back" })),
    altered() && button("edit-none", "Take all back", reset), edits.length > 0 && element("span", { class: "quiet" }, "The checks are for numbers as they were computed, and are left out."));
  restoreFocus();
}
function reset() {
  ask({ edits: [], options: {}, weights: [] });
  showFields();
}

// ---- a model ---------------------------------------------------------------------------------------------------------
const samplers = [["temperature", { min: 0, max: 5, step: 0.1 }], ["top-k", { min: 0, step: 1 }],
  ["top-p", { min: 0.01, max: 1, step: 0.01 }]];
const sampled = (i) => (x) => { live.sampling[i] = x; ask(); };

function modelPanel() {
  const files = input("live-files", "file", { multiple: true, hidden: true, accept: ".gguf,.safetensors,.json", onchange: () => { openOwn(files.files); files.value = ""; } });
  const pooling = choice({ id: "live-pooling", onchange: () => ask() }, [["mean", "the mean of all tokens"], ["first", "the first token"]]);
  livePanel(live.steps.length > 0 && checkpointField(), element("p", { id: "live-loss", class: "quiet writes" }), element("div", { id: "live-next", class: "controls writes", role: "group", "aria-label": "The next tokens and their chances" }),
    element("div", { class: "controls writes" }, button("live-one", "Continue by one", () => proceed(live.drawn)), button("live-on", "Continue", toggled),
      samplers.map(([id, more], i) =>
        numberField(id, id, { ...more, required: true, value: live.sampling[i] }, sampled(i)))),
    element("div", { class: "encodes" }, liveText("live-source", "A second text, whose vector is compared", "", (event) => ask({ source: event.target.value }, "second")),
      controls(field("a text’s vector is", pooling), element("output", { id: "live-similar" }))),
    controls(button("live-open", "Open your own model", () => files.click()), files));
  experimentsPanel();
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, dragged);
}

// A text goes on token by token. Where a pass with its steps takes long, they are shown when it pauses.
function toggled() {
  live.going = !live.going;
  byId("live-on").textContent = live.going ? "Pause" : "Continue";
  if (live.going) proceed(live.drawn);
  else if (live.ahead) ask();
}

// With edits a number stands behind what it is without them.
const behind = (before, now, show) => (live.now.edits.length ? `${show(before)} → ` : "") + show(now);
function showNext() {
  if (!live.size.writes) return showSimilar();
  const { loss, before, tokens } = live.next, restoreFocus = focusPlace();
  byId("live-loss").textContent = loss === "nan" ? "" : `loss ${behind(before, loss, (x) => format(Number(x)))} nats a ${report.unit}`;
  fill(byId("live-next"), tokens.filter((one) => one.chance > 0 || one.before > 0).slice(0, 12).map(({ id, token: text, chance, before: was }) =>
    button(null, [word(text), " ", element("span", { class: "number" }, behind(was, chance, percent))], () => proceed({ id, token: text }), { class: "token", "data-id": id })));
  restoreFocus();
}

function showSimilar() {
  const { cosine, before } = live.similar ?? {};
  byId("live-similar").textContent = cosine === undefined ? "Type a second text to compare." : `cosine ${behind(before, cosine, format)}`;
}
// Some models write, and others, encoders, make a vector of a text.
function sized(size) {
  live.size = size;
  document.body.classList.toggle("encoder", !size.writes);
}

// ---- a model from this computer --------------------------------------------------------------------------------------
// Files that are dropped anywhere. Browsers do not let a page from disk look into a folder.
function dragged(event) {
  const { types, items, files } = event.dataTransfer;
  if (!types.includes("Files")) return;
  event.preventDefault();
  if (event.type !== "drop") return;
  const folder = Array.from(items, (item) => item.webkitGetAsEntry()).find((entry) => entry?.isDirectory);
  folder ? said(`[page] expected the files of a model; found ${folder.name}, a folder; drop the files in it together`) : openOwn(files);
}
function openOwn(files) {
  const chosen = [...files];
  if (!chosen.length) return;
  if (!live.code) return said("The page’s own model is not open yet.");
  said(`Opening ${named(...chosen.map(({ name }) => name))} …`);
  live.asked++;
  askModel({ ...asMade(live.now.text || report.title), at: undefined, files: chosen });
}
function become({ name, left, bytes, ...size }, { text, blocks: found }) {
  Object.assign(live, { file: name, past: [], base: undefined, steps: [] });
  sized(size);
  byId("live-checkpoints")?.remove();
  live.begun = asMade(text);
  live.now = live.shownNow = asMade(live.now.text || text);  // It may have been typed meanwhile.
  byId("live-source").value = "";
  const notes = [`${name}, a model from this computer: ${size.family}, ${size.layers} layers of ${size.heads} heads, ${size.weights.toLocaleString("en")} weights.`, left.length > 0 && `Not read: ${left.join(", ")}.`];
  Object.assign(report, { unit: bytes ? "byte" : "token", repeated: 0, randomWeights: "", facts: report.facts.filter(([name]) => name === "version"), notes: notes.filter(Boolean) });
  const all = found.map(({ label, heads }, b) => new Block({ label, heads, number: Number(/\d+/.exec(label)?.[0] ?? b) + 1, steps: [] }));
  blocks.splice(0, blocks.length, ...all);
}

function heard({ data }) {
  const { number, failed, opened, code, space, names, experiment, error } = data, ofShown = number === live.shown;
  if (opened) {
    sized(opened);
    live.code = code;
    libraryOpen();
    return begin();
  }
  if (failed) return recordedOnly({ message: failed });
  if (experiment) return showExperiment(data);
  if (names) return ofShown && showNames(names);
  if (space) return ofShown && restHeard(data);
  if (error) {
    live.ahead = false;
    if (live.going) toggled();
    return refused(error);
  }
  answerHeard(data);
}

function answerHeard(data) {
  const { number, ahead, ids, next, similar, drawn, drawnToken, file } = data;
  Object.assign(live, { ahead, ids, next, similar, drawn: { id: drawn, token: drawnToken } });
  if (ahead) answered("The layers below follow when the text pauses.");
  else layersHeard(data);
  showNext();
  showStep();
  document.body.dataset.answered = number;
  if (!ahead) askNames();
  if (live.waits?.model === live.file && file) return restore(live.waits.hash);
  if (file && number < live.asked) ask();  // what was typed meanwhile was read by the model before
  if (live.going) setTimeout(() => live.going && proceed(live.drawn), ahead ? 0 : 60);
}

function layersHeard(data) {
  live.shown = data.number;
  fill(live.found);
  live.namesDue = Boolean(data.file) || live.namesDue || live.shownNow.at !== live.now.at;
  live.shownNow = live.now;
  if (data.file) become(data.file, data);
  if (data.base) live.base = { ids: data.ids.join(), values: valuesOf(data.base) };
  if (live.restored || data.number > 1) showAnswer(data, live.base?.ids === data.ids.join() ? live.base.values : undefined);  // what was recorded stays as it is until something is changed
  if (live.now.text === undefined) live.now.text = data.text, showFields();
  answered(data.cut && `At most ${live.size.context} tokens are read: these are the last ones.`);
}

async function startModel() {
  const part = (id) => byId(id).textContent;
  const { weights, kept, keptInBytes, ids, ...model } = JSON.parse(part("model"));
  live.begun = live.shownNow = live.now = { ...live.now, ids };  // The text may not say what was read.
  Object.assign(live, { steps: kept.map(({ step }) => step), keptInBytes, restored: model.inBytes });  // what was recorded is of other weights
  modelPanel();
  showStep();
  live.worker = new Worker(URL.createObjectURL(new Blob([part("library"), part("worker")], { type: "text/javascript" })));
  Object.assign(live.worker, { onmessage: heard, onerror: recordedOnly });
  live.worker.postMessage({ engine: bytesOf(part("engine")), model: { ...model, weights: bytesOf(weights) }, kept: kept.map((one) => bytesOf(one.weights)), keptInBytes });
}
