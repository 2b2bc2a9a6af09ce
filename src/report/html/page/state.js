// The selection: one query, key and head drive every panel; the address's hash holds them.

const state = { block: Math.max(blocks.indexOf(openBlock()), 0), head: 0, query: 0, key: 0, column: 0, step: "weights", view: "head", other: 0, scale: "auto" };
const address = location.hash;  // as it was opened

const currentBlock = () => blocks[state.block];
const currentStep = () => currentBlock().step(state.step) ?? currentBlock().step("weights");

// ---- names: the same in the map, on cards, in tables and in the address ------------------
const severalLayers = () => blocks.length > 1;
// Some layers of a model may have no weights, or may not have been asked for, and are not here.
const layerNumber = (b) => blocks[b].number;
const headsAcross = () => Math.max(...blocks.map(({ heads }) => heads));
const layerName = (b = state.block) => (severalLayers() ? `layer ${layerNumber(b)}` : "");
const named = (...parts) => parts.filter(Boolean).join(", ");
const headName = (head = state.head, b = state.block) => named(layerName(b), `head ${head + 1}`);
const fileName = (what) => named(what, headName()).replaceAll(", ", "-").replaceAll(" ", "-");

// A place among so many.
const clamp = (x, count) => clamped(Math.trunc(x) || 0, 0, Math.max(count - 1, 0));

function tidied(next) {
  const block = clamp(next.block, blocks.length), heads = blocks[block].heads;
  const shown = blocks[block].step(next.step) ?? blocks[block].step("weights");
  return {
    block, step: shown.name,
    head: clamp(next.head, heads), other: clamp(next.other, heads),
    query: clamp(next.query, report.tokens.length), key: clamp(next.key, report.keyTokens.length),
    column: clamp(next.column, shown.pairs ? Infinity : shown.columns),
    view: Object.hasOwn(views, next.view) ? next.view : "head",
    scale: Object.hasOwn(scaleNames, next.scale) ? next.scale : "auto",
  };
}

// A layer that is still compressed is opened first; one that cannot be opened is not shown, and the page says why.
function select(change) {
  const wanted = blocks[clamp(change.block ?? state.block, blocks.length)];
  const shown = [wanted, currentBlock(), openBlock()].find(({ packed }) => !packed);
  if (wanted.packed) wanted.open().then(() => wanted.packed || select(change));
  Object.assign(state, tidied({ ...state, ...change, block: blocks.indexOf(shown) }));
  const hash = hashOf(state), restoreFocus = focusPlace();
  if (location.hash !== hash) history.replaceState(null, "", hash);
  drawHosts(byId("first"), byId("selection"));
  restoreFocus();
  drawBelow();
}
// Panels show what is selected. Those that are folded are not drawn.
function drawHosts(...hosts) {
  for (const panel of hosts.flatMap((host) => [host, ...host.children])) if (panel.open !== false) panel.draw?.();
  renewExports();
}

// Draws the parts below the map and the steps behind the frame that shows these, or before the page is printed.
const below = { build: undefined, asked: 0, drawn: Promise.resolve() };
function drawBelow(build = below.build) {
  const asked = ++below.asked;
  below.build = build;
  below.drawn = new Promise((done) => {
    const draw = () => done(asked === below.asked && drawnBelow());
    requestAnimationFrame(() => setTimeout(draw));
    setTimeout(draw, 100);  // a page that is hidden has no frames
  });
}
function drawnBelow() {
  below.asked++;
  const restoreFocus = focusPlace();
  below.build?.();
  below.build = undefined;
  drawHosts(byId("more"));
  restoreFocus();
}

let changesHash = "";  // of a page that computes: what was changed, behind the selection

function told(block, error) {
  byId("about").append(element("p", { class: "note closed", role: "alert" },
    `Layer ${layerNumber(blocks.indexOf(block))} cannot be opened: ${error.message || error}. Its numbers are compressed, and this browser could not decompress them; a new browser can (Chrome 103, Firefox 113, Safari 16.4), unless the file is damaged.`));
}

// Opens what is compressed, one layer after the other, and draws all heads when they are there.
async function openAll() {
  const closed = blocks.filter((block) => block.packed);
  for (const block of closed) await block.open();
  if (closed.length) select({});
}

// #query=2&key=4&head=1&step=weights, counted from 1; a layer by its number in the model.
function hashOf({ block, head, query, key, column, step, view, other, scale }) {
  const parts = { query: query + 1, key: key + 1, head: head + 1, step, column: !blocks[block].step(step).pairs && column + 1, layer: severalLayers() && layerNumber(block),
    view: view !== "head" && view, other: view === "difference" && other + 1, scale: scale !== "auto" && scale };
  return `#${new URLSearchParams(Object.entries(parts).filter(([, part]) => part))}${changesHash}`;
}

function fromHash(hash = location.hash) {
  const found = new URLSearchParams(hash.slice(1)), change = {};
  for (const name of ["query", "key", "head", "column", "other"]) if (found.has(name)) change[name] = found.get(name) - 1;
  if (found.has("layer")) change.block = blocks.findIndex((_, b) => layerNumber(b) === Number(found.get("layer")));
  for (const name of ["step", "view", "scale"]) if (found.has(name)) change[name] = found.get(name);
  return change;
}

// ---- the keyboard ------------------------------------------------------------------------
// A picture with many places to choose from is one stop of Tab: the place that is selected, which has tabindex 0.
// There the arrow keys move the selection, and [ and ] the head. Elsewhere the arrow keys scroll.
const arrowKeys = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
function roving(picture, move) {
  picture.dataset.roving = "";
  picture.addEventListener("keydown", (event) => {
    const by = arrowKeys[event.key], head = { "[": -1, "]": 1 }[event.key];
    if ((!by && !head) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    by ? move(...by) : select({ head: state.head + head });
    document.activeElement.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return picture;
}

// The way to what has the focus, from the nearest element with an id: in a view that is built anew the same place has
// it again, and in a picture what is selected then.
function focusPlace() {
  const held = document.activeElement, picture = held.closest("[data-roving]"), way = [];
  let root = picture ?? held;
  for (; root.parentElement && !root.id; root = root.parentElement) way.unshift([...root.parentElement.children].indexOf(root));
  return () => {
    if (held === document.body || (held.isConnected && !picture)) return;
    const found = way.reduce((node, at) => node?.children[at], byId(root.id));
    const focused = [found, found?.querySelector("[tabindex='0']"), document.querySelector("[data-roving] [tabindex='0']")];
    focused.find((node) => node?.tabIndex === 0)?.focus({ preventScroll: true });
  };
}

// ---- lists that show and change a part of the selection -------------------------------
const numberedWord = (text, i) => `${i + 1} · ${word(text, 24)}`;
const chooser = (name, attributes, options) => choice({ ...attributes, onchange: ({ target }) => select({ [name]: target.value }) }, options, state[name]);

// The bar that names the selection.
function selectionBar(host) {
  const several = headsAcross() > 1, places = { block: severalLayers() && blocks.map((_, b) => String(layerNumber(b))), head: several && numbers(headsAcross()),
    query: report.tokens.map(numberedWord), key: report.keyTokens.map(numberedWord) };
  const lists = Object.keys(places).filter((name) => places[name]).map((name) => chooser(name, { name }, places[name].map((text, i) => [i, word(text, 30)])));
  fill(host, lists.map((list) => element("label", {}, element("span", {}, list.name === "block" ? "layer" : list.name), list)),
    element("span", { class: "hint" }, "In the pictures arrow keys move the selection", several && ", [ and ] the head"));
  host.draw = () => lists.forEach((list) => { list.value = state[list.name]; });
}
