// What is selected. One query, key and head drive every panel; the address's hash holds them.

const state = { block: 0, head: 0, query: 0, key: 0, column: 0, step: "weights", view: "head", other: 0, scale: "auto" };
const listeners = [];
const onSelection = (listener) => listeners.push(listener);

const currentBlock = () => blocks[state.block];
const currentStep = () => currentBlock().step(state.step) ?? currentBlock().step("weights");
const headName = (head) => `head ${head + 1}`;
// Of several layers the one that is shown: ", layer 2". Some layers of a model may have no weights, and are not here.
function layerNumber(b) {
  if (blocks[b].number) return blocks[b].number;
  const [, number] = /^layers\.(\d+)$/.exec(blocks[b].label) ?? [];
  return (number === undefined ? b : Number(number)) + 1;
}
const layerPart = (before) => (blocks.length < 2 ? "" : `${before}layer ${layerNumber(state.block)}`);
const fileName = (what) => `${what}${layerPart("-").replace(" ", "-")}-head-${state.head + 1}`;

function clamp(x, count) { return Math.min(Math.max(Number.isFinite(x) ? Math.trunc(x) : 0, 0), Math.max(count - 1, 0)); }

function tidied(next) {
  const block = clamp(next.block, blocks.length), heads = blocks[block].heads;
  const step = blocks[block].step(next.step) ? next.step : "weights";
  const shown = blocks[block].step(step);
  return {
    block, step,
    head: clamp(next.head, heads), other: clamp(next.other, heads),
    query: clamp(next.query, report.tokens.length), key: clamp(next.key, report.keyTokens.length),
    column: clamp(next.column, shown.pairs ? Infinity : shown.columns),
    view: ["head", "average", "maximum", "difference"].includes(next.view) ? next.view : "head",
    scale: Object.hasOwn(scaleNames, next.scale) ? next.scale : "auto",
  };
}

// A layer that is still compressed is opened first; one that cannot be opened is not shown, and the page says why.
function select(change) {
  const wanted = blocks[clamp(change.block ?? state.block, blocks.length)];
  if (wanted.packed) {
    const whole = change;
    wanted.open().then(() => select(whole), (error) => told(wanted, error));
    change = { ...change, block: blocks.indexOf(blocks[state.block].packed ? openBlock() : blocks[state.block]) };
  }
  Object.assign(state, tidied({ ...state, ...change }));
  const hash = hashOf(state);
  if (location.hash !== hash) history.replaceState(null, "", hash);
  for (const listener of listeners) listener();
  renameExports();
}

const toldOf = new Set();
function told(block, error) {
  if (toldOf.has(block)) return;
  toldOf.add(block);
  document.getElementById("about").append(element("p", { class: "note closed", role: "alert" },
    `Layer ${layerNumber(blocks.indexOf(block))} cannot be opened: ${error.message || error}. Its numbers are compressed, and this browser could not decompress them; a new browser can (Chrome 103, Firefox 113, Safari 16.4), unless the file is damaged.`));
}

// Opens what is compressed, one layer after the other, and draws all heads when they are there.
async function openAll() {
  const closed = blocks.filter((block) => block.packed);
  for (const block of closed) await block.open().catch((error) => told(block, error));
  if (closed.length) select({});
}

// #query=2&key=4&head=1&step=weights, counted from 1
function hashOf(s) {
  const parts = [`query=${s.query + 1}`, `key=${s.key + 1}`, `head=${s.head + 1}`, `step=${s.step}`];
  if (!blocks[s.block].step(s.step).pairs) parts.push(`column=${s.column + 1}`);
  if (s.block !== 0) parts.push(`layer=${s.block + 1}`);
  if (s.view !== "head") parts.push(`view=${s.view}`);
  if (s.view === "difference") parts.push(`other=${s.other + 1}`);
  if (s.scale !== "auto") parts.push(`scale=${s.scale}`);
  return `#${parts.join("&")}`;
}

function fromHash() {
  const found = new URLSearchParams(location.hash.slice(1)), change = {};
  const counted = { query: "query", key: "key", head: "head", column: "column", layer: "block", other: "other" };
  for (const [name, field] of Object.entries(counted)) {
    if (found.has(name)) change[field] = Number.parseInt(found.get(name), 10) - 1;
  }
  for (const name of ["step", "view", "scale"]) if (found.has(name)) change[name] = found.get(name);
  return change;
}

// Arrows move the selection: up and down the query, left and right the key (or the column of a vector),
// page up and down the head. Fields that take arrows themselves keep them.
function onArrow(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, [data-keys]")) return;
  const { pairs, ofKeys } = currentStep(), row = ofKeys ? "key" : "query", across = pairs ? "key" : "column";
  const moves = {
    ArrowUp: { [row]: state[row] - 1 }, ArrowDown: { [row]: state[row] + 1 },
    ArrowLeft: { [across]: state[across] - 1 }, ArrowRight: { [across]: state[across] + 1 },
    "[": { head: state.head - 1 }, "]": { head: state.head + 1 },
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  select(move);
}

// ---- the bar that names the selection -------------------------------------------------
const numberedWord = (text, i) => `${i + 1} · ${word(text, 24)}`;
function chooser(label, name, labels, from) {
  const list = element("select", { name, onchange: (event) => select({ [name]: Number(event.target.value) }) },
    labels.map((text, i) => element("option", { value: i }, word(text, 30))));
  return { node: element("label", {}, element("span", {}, label), list), show: () => { list.value = String(from()); } };
}

function selectionBar(host) {
  const parts = [
    blocks.length > 1 && chooser("layer", "block", blocks.map((_, b) => String(layerNumber(b))), () => state.block),
    chooser("query", "query", report.tokens.map(numberedWord), () => state.query),
    chooser("key", "key", report.keyTokens.map(numberedWord), () => state.key),
    blocks.some((b) => b.heads > 1) && chooser("head", "head", numbers(Math.max(...blocks.map((b) => b.heads))), () => state.head),
  ].filter(Boolean);
  fill(host, parts.map((part) => part.node),
    element("span", { class: "hint" }, "arrow keys move query and key", blocks.some((b) => b.heads > 1) ? ", [ and ] the head" : ""));
  host.hidden = false;
  onSelection(() => parts.forEach((part) => part.show()));
}
