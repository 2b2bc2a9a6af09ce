// The address of a page that computes: behind the selection it has what differs from the page as it was made, so that
// whoever opens it sees the same. What it says is looked at before the library is asked, which looks at the rest.

const isCount = (x) => Number.isInteger(x) && x >= 0 && x < 2 ** 31, isText = (x) => typeof x === "string";
// Whether x has the fields of `needed`, perhaps some of `more`, each as its rule says, and no other.
function fits(x, needed, more = {}) {
  const rules = { ...needed, ...more }, names = x !== null && typeof x === "object" ? Object.keys(x) : [undefined];
  return Object.keys(needed).every((name) => names.includes(name)) && names.every((name) => Object.hasOwn(rules, name) && rules[name](x[name]));
}
const isPlace = (x, how) => fits(x, { step: isText, row: isCount, column: isCount, ...how }, { head: isCount });
const isEdit = (x) => fits(x, { layer: isCount, head: isCount }) || isPlace(x, { value: (v) => v === "-inf" || isNumber(v) }) || isPlace(x, { from: isText });
const isWeight = (x) => fits(x, { name: isText, at: isCount, value: isNumber }) && x.at < (parameter(x.name)?.values.length ?? 0);
const listOf = (rule) => (list) => Array.isArray(list) && list.length <= 1000 && list.every(rule);
const isOptions = (x) => fits(x, {}, { scale: isNumber, softcap: isNumber, window: isCount, causal: (v) => typeof v === "boolean", seed: isCount });
const inAddress = {
  edits: ["a list of edits", listOf(isEdit)],
  ...(live.isModule ? { options: ["a module’s options", isOptions], weights: ["a list of this module’s weights", listOf(isWeight)] }
    : { ids: ["a list of ids", listOf(isCount)], at: ["a step that this page has, by its place", (x) => isCount(x) && x < live.steps.length] }),
};

function addressOf({ text, source, ids, ...others }) {
  const { begun, file } = live, found = {};
  if (file) found.model = file;
  if (!ids && (file || begun.ids || text !== begun.text)) found.text = text;
  if (source !== begun.source) found.source = source;
  if (ids !== begun.ids) others.ids = ids;
  for (const [name, value] of Object.entries(others)) if (isCount(value) || (value && Object.keys(value).length)) found[name] = JSON.stringify(value);
  const written = `&${new URLSearchParams(found)}`;
  try { return written.slice(1) && readAddress(written) && written; } catch { return ""; }  // The page would refuse it.
}

// Waits a moment, not to do this at each letter: browsers count how often a page changes its address.
function share() {
  clearTimeout(live.sharing);
  live.sharing = setTimeout(() => { changesHash = addressOf(live.now); history.replaceState(null, "", hashOf(state)); }, 400);
}
// Returns what an address asks for. Throws Error with words for the page to show.
function readAddress(hash) {
  const found = new URLSearchParams(hash.slice(1)), change = {}, most = 10000, wrong = (what, got) => { throw new Error(`[address] expected ${what}; found ${word(got, 60)}`); };
  for (const name of ["text", "source"]) {
    const text = found.get(name);
    if (text?.length > most) wrong(`a ${name} of at most ${most} characters`, `${text.length}`);
    if (text !== null) change[name] = text;
  }
  for (const [name, [what, isRight]] of Object.entries(inAddress)) {
    if (!found.has(name)) continue;
    try { change[name] = JSON.parse(found.get(name)); } catch { wrong(what, found.get(name)); }
    if (!isRight(change[name])) wrong(what, found.get(name));
  }
  if (change.ids) change.text = undefined;  // it follows from them
  else if (change.text !== undefined) change.ids = undefined;
  return change;
}

// Keeps what was typed or changed while the page opened, beside what its address asks for.
function begin() {
  const { now, begun } = live, own = Object.entries(now).filter(([name, value]) => value !== begun[name]);
  Object.assign(live, { now: begun, past: [] });
  restore(address);
  if (own.length) ask(Object.fromEntries(own)), showFields();
}
// The first address may say nothing, and then the page is as it was made.
function restore(hash) {
  live.waits = undefined;
  const wanted = new URLSearchParams(hash.slice(1)).get("model") ?? undefined, ofModel = (name) => (name === undefined ? "this page’s own" : word(name, 60));
  let change = {};
  try {
    if (wanted !== live.file) throw new Error(`[address] expected the model that is open, ${ofModel(live.file)}; found ${ofModel(wanted)}; open that one first`);
    change = readAddress(hash);
  } catch (error) {
    live.waits = { hash, model: wanted };
    return refused(error.message, true);
  }
  const given = Object.keys(change).length > 0;
  if (live.isModule && !given && live.now === live.begun) return undefined;
  live.restored ||= given;
  live.restoring = live.asked + 1;
  live.selected = given ? fromHash(hash) : undefined;  // of tokens that are there when the answer is
  ask(given || live.now !== live.begun ? { ...live.begun, ...change } : {});
  showFields();
}
window.addEventListener("hashchange", ({ newURL }) => restore(new URL(newURL).hash));

// Takes back what cannot be done, but for the texts, which are typed; of an address it takes back all.
function refused(error, ofAddress) {
  const restoring = live.restoring === live.asked || ofAddress;
  live.restoring = live.selected = undefined;
  if (!restoring) {
    const { text, source, ids } = live.now;
    live.now = { ...live.shownNow, text, source, ids };
    showStep();
    return said(error);
  }
  live.notice = `The address is not taken over: ${error}`;
  ask({ ...live.now, ...(ofAddress ? {} : live.begun) });
  showFields();
}
// Says what there is to say beside an answer.
function answered(more) {
  said([live.notice, more].filter(Boolean).join(" "));
  [live.notice, live.restoring] = ["", undefined];
}
