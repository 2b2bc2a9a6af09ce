// A page that computes: its model reads what is typed or continued, with numbers changed and heads switched off, and
// every panel follows. The library does it, in a worker.

const live = { text: report.title, ids: undefined, edits: [], asked: 0, shown: 0, timer: undefined };

// What the worker's answer says of a layer's attention, in the order and with the titles of the recorded steps.
function renew(block, prefix, steps, known) {
  const found = new Map(steps.filter(({ name }) => name.startsWith(`${prefix}.`)).map((step) => [step.name.slice(prefix.length + 1), step]));
  const scores = found.get("weights").scores.map(([entropy, distance, first, previous, diagonal]) => ({ entropy, distance, first, previous, diagonal }));
  Object.assign(block, { packed: undefined, masks: undefined, space: undefined, scores });
  block.steps = known.filter(({ name }) => found.has(name)).map((meta) => {
    const { shape, values } = found.get(meta.name), several = meta.kind !== "tokens" && shape.length < 3;
    const step = new Step({ ...meta, data: { f32: "", shape: several ? [1, ...shape] : shape } }, block);
    step.decoded = values;
    return step;
  });
}

function showAnswer({ tokens, text, steps }) {
  const known = live.known ??= openBlock().steps.map(({ name, kind, ofKeys, title, meaning }) => ({ name, kind, ofKeys, title, meaning }));
  Object.assign(report, { tokens, keyTokens: tokens, exact: true });
  blocks.forEach((block, b) => renew(block, live.prefixes[layerNumber(b) - 1], steps, known));
  combined.clear();
  document.querySelector("h1").textContent = text;
  drawPanels(new Set(["space", "checks", "snippets"]));
  select({ query: Math.min(state.query, tokens.length - 1), key: Math.min(state.key, tokens.length - 1) });
}

function ask(change = {}) {
  Object.assign(live, change);
  const number = (id) => Number(document.getElementById(id).value);
  live.worker.postMessage({ number: ++live.asked, text: live.text, ids: live.ids, edits: live.edits.map(({ edit }) => edit),
    sampling: { temperature: number("temperature"), topK: number("top-k"), topP: number("top-p"), most: 24, seed: Math.floor(Math.random() * 2 ** 31) } });
}

const typed = (text) => ask({ text, ids: undefined, edits: live.edits.filter(({ edit }) => !edit.step) });
// The text goes on with a token: the one that was drawn, or one that was chosen. Its text may not be all of a character.
function proceed({ id, token: text }) {
  if (id === undefined) return;
  ask({ text: live.text + text, ids: [...live.ids, id], drawn: {}, edits: live.edits.filter(({ edit }) => !edit.step) });
  document.getElementById("live-text").value = live.text;
}

function edited(edit, label) {
  ask({ edits: [...live.edits, { edit, label }] });
}
function headOff() {
  edited({ layer: layerNumber(state.block) - 1, head: state.head }, `${headName()} off`);
}
function numberSet(text) {
  const step = currentStep(), row = step.ofKeys ? state.key : state.query, column = step.pairs ? state.key : state.column;
  const value = /^\s*[-−](inf|∞)/.test(text) ? "-inf" : Number(text.replace("−", "-"));
  if (value !== "-inf" && (text.trim() === "" || !Number.isFinite(value))) return said("A number is needed, or -inf.");
  const head = step.kind === "tokens" ? undefined : step.planeOf(state.head);
  edited({ step: `${live.prefixes[layerNumber(state.block) - 1]}.${step.name}`, head, row, column, value },
    `${named(step.name, headName())} at ${row + 1}, ${column + 1} = ${value}`);
}

function said(text) { document.getElementById("live-said").textContent = text; }

function livePanel() {
  const field = (id, label, attributes) => element("label", { class: "field" }, label, element("input", { id, type: "number", oninput: () => ask(), ...attributes }));
  const button = (id, text, onclick) => element("button", { type: "button", id, onclick }, text);
  const value = element("input", { id: "edit-value", type: "text", size: 8, "aria-label": "The selected number becomes" });
  document.getElementById("panels").prepend(element("div", { class: "page" }, element("section", { class: "panel", id: "live", "aria-label": "Type" },
    element("textarea", { id: "live-text", rows: 2, spellcheck: "false", dir: "auto", "aria-label": "Text that the model reads", oninput: (event) => typed(event.target.value) }, live.text),
    element("div", { id: "live-next", class: "controls", role: "group", "aria-label": "The next tokens and their chances" }),
    element("div", { class: "controls" }, button("live-one", "Continue by one", () => proceed(live.drawn)), button("live-on", "Continue", toggled),
      field("temperature", "temperature", { min: 0, max: 5, step: 0.1, value: 1 }), field("top-k", "top-k", { min: 0, step: 1, value: 0 }), field("top-p", "top-p", { min: 0.01, max: 1, step: 0.01, value: 1 })),
    element("div", { class: "controls" }, element("label", { class: "field" }, "the selected number becomes", value), button("edit-set", "Set", () => numberSet(value.value)), button("edit-head", "Switch this head off", headOff)),
    element("div", { id: "live-edits", class: "controls" }), element("p", { class: "quiet", id: "live-said", role: "status" }))));
  Object.assign(document.getElementById("live-text").style, { width: "100%", font: "inherit", padding: "8px" });
}

function toggled() {
  live.going = !live.going;
  document.getElementById("live-on").textContent = live.going ? "Pause" : "Continue";
  if (live.going) proceed(live.drawn);
}

function showNext() {
  fill(document.getElementById("live-next"), live.next.filter(({ chance }) => chance > 0).slice(0, 12).map(({ id, token: text, chance }) =>
    element("button", { type: "button", class: "token", "data-id": id, onclick: () => proceed({ id, token: text }) }, word(text), " ", element("span", { class: "number" }, percent(chance)))));
  fill(document.getElementById("live-edits"), live.edits.map(({ label }, i) => element("button", { type: "button", title: "Take back", onclick: () => ask({ edits: live.edits.filter((_, j) => j !== i) }) }, `${label} ×`)),
    live.edits.length > 1 && element("button", { type: "button", id: "edit-none", onclick: () => ask({ edits: [] }) }, "Take all back"));
}

function heard({ data }) {
  if (data.failed) return said(`This page shows the recorded pass: ${data.failed}`);
  if (data.opened) { live.size = data.opened; return ask(); }
  if (data.error) { live.edits = live.shownEdits ?? []; live.going = false; return said(data.error); }
  live.shown = data.number;
  live.shownEdits = live.edits;
  live.prefixes = data.steps.filter(({ name }) => name.endsWith(".weights")).map(({ name }) => name.slice(0, -".weights".length));
  Object.assign(live, { ids: data.ids, next: data.next, drawn: { id: data.drawn, token: data.drawnToken } });
  if (data.number > 1) showAnswer(data);  // what was recorded stays as it is until something is changed
  said(data.cut ? `The model reads ${live.size.context} tokens at most: these are the last ones.` : "");
  showNext();
  document.body.dataset.answered = data.number;
  if (live.going) setTimeout(() => live.going && proceed(live.drawn), 60);
}

function startLive() {
  const part = (id) => document.getElementById(id).textContent, bytes = (text) => bytesOf(text);
  livePanel();
  try {
    live.worker = new Worker(URL.createObjectURL(new Blob([part("library")], { type: "text/javascript" })));
    live.worker.onmessage = heard;
    live.worker.onerror = (event) => said(`This page shows the recorded pass: ${event.message}`);
    const { weights, ...model } = JSON.parse(part("model"));
    live.worker.postMessage({ engine: bytes(part("engine")), model: { ...model, weights: bytes(weights) } });
  } catch (error) {
    said(`This page shows the recorded pass: ${error.message}`);
  }
}
startLive();
