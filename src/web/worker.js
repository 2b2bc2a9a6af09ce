// A page's worker: it opens what the page hands it, and answers each request with all that follows from a text. Of
// requests that have come meanwhile the latest is answered, and the others are passed over.
let code, opened, waiting, rest, chosen;
const atOnce = 2e8;  // tokens times weights of passes that take a tenth of a second
const mostScores = 2 ** 24;  // of a pass, all of which the page keeps, with the steps around them

const isGguf = (weights) => weights[0] === 71 && weights[1] === 71;
// Whether a safetensors file holds its config; the library says of one that cannot be read why.
function hasConfig(weights) {
  try {
    const end = 8 + Number(new DataView(weights.buffer).getBigUint64(0, true));
    return "config" in JSON.parse(new TextDecoder().decode(weights.subarray(8, end))).__metadata__;
  } catch { return false; }
}

// A model has a library of its own, so that nothing stays of one that is refused, or that another takes the place of.
function openModel({ weights, config, tokenizer, tokenizerConfig }) {
  const library = new Library(code), gguf = isGguf(weights), size = library.openModel(weights, config, gguf ? 3 : 0);
  expect(gguf || tokenizer || size.vocab === 256, `a tokenizer.json beside a model of ${size.vocab} tokens`, "none; choose it together with the model");
  const tokens = library.openTokenizer(tokenizer, tokenizerConfig, gguf ? weights : new Uint8Array());
  expect(tokens <= size.vocab, `the tokenizer of a model of ${size.vocab} tokens`, `one of ${tokens}`);
  const context = Math.min(size.context, Math.floor(Math.sqrt(mostScores / size.layers / size.heads)));
  return { library, config, gguf, size: { ...size, longest: size.context, context, bytes: !gguf && !tokenizer } };
}

// The shards of a model as one file: their headers together, and their numbers one behind the other.
async function joined(shards, index) {
  const all = {}, data = [], wanted = new Set(Object.values(JSON.parse(index).weight_map ?? {})), missing = [...wanted].find((name) => !shards.some((shard) => shard.name === name));
  expect(!missing && wanted.size === shards.length, `the ${wanted.size} files that model.safetensors.index.json names`, missing ? `none named ${missing}` : `${shards.length}`);
  let end = 0;
  for (const shard of shards) {
    const from = 8 + Number(new DataView(await shard.slice(0, 8).arrayBuffer()).getBigUint64(0, true)), { __metadata__, ...tensors } = JSON.parse(await shard.slice(8, from).text());
    for (const [name, { data_offsets: [first, last], ...entry }] of Object.entries(tensors)) {
      expect(!Object.hasOwn(all, name), "every tensor once", `${name} twice`);
      all[name] = { ...entry, data_offsets: [first + end, last + end] };
    }
    data.push(shard.slice(from));
    end += shard.size - from;
  }
  return new File([beginning(all), ...data], `${wanted.size} shards`);
}
const inShards = (shards, index) => joined(shards, index).catch((error) => { throw error instanceof LibraryError ? error : new LibraryError(`[page] expected the shards of a model and their index; found ${error.message}`); });

// As the library reads these texts of a folder: the tokens of the older file come before the config's own.
function withSpecialTokens(config, map) {
  try {
    const all = JSON.parse(config);
    return all.added_tokens_decoder ? config : JSON.stringify({ ...all, ...JSON.parse(map) });
  } catch (error) {
    throw new LibraryError(`[page] expected JSON in tokenizer_config.json and special_tokens_map.json; found ${error.message}`);
  }
}

// The model among files from this computer, with the others that it needs; those that it has no use for are told.
async function openFiles(files) {
  const left = [...files], take = (test) => { const at = left.findIndex(test); return at < 0 ? undefined : left.splice(at, 1)[0]; };
  const named = async (name) => (await take((file) => file.name === name)?.text()) ?? "";
  const isModel = ({ name }) => /\.(gguf|safetensors)$/i.test(name), models = left.filter(isModel), others = left.filter(({ name }) => !/\.json$/i.test(name));
  const index = models.length > 1 && await named("model.safetensors.index.json"), only = models[0] ?? (others.length === 1 && others[0]);
  expect(only && (models.length <= 1 || index), "a model in one file, safetensors or GGUF", models.map(({ name }) => name).join(" and ") || "none");
  const file = index ? await inShards(models, index) : only, name = file.name;
  for (const used of index ? models : [only]) take((one) => one === used);
  expect(file.size < 2 ** 31, "a model of less than 2.1 GB", `${name} of ${(file.size / 1e9).toFixed(1)} GB`);
  const weights = new Uint8Array(await file.arrayBuffer()), texts = {};
  // A GGUF file has its config and its tokenizer in it.
  if (!isGguf(weights)) Object.assign(texts, { config: hasConfig(weights) ? "" : await named("config.json"), tokenizer: await named("tokenizer.json") });
  if (texts.tokenizer) {
    texts.tokenizerConfig = await named("tokenizer_config.json");
    const map = await named("special_tokens_map.json"), added = left.some((one) => one.name === "added_tokens.json");
    if (map) texts.tokenizerConfig = withSpecialTokens(texts.tokenizerConfig || "{}", map);
    expect(!added, "a tokenizer in a tokenizer.json alone", "added_tokens.json; leave it out");
  }
  return { ...openModel({ ...texts, weights }), name, left: left.map((one) => one.name) };
}

// The weights that a run has kept take the place of the model's, or its own again.
function hold(model, at) {
  if (model.at === at) return;
  const bytes = at === undefined ? model.weights : model.kept?.[at];
  expect(bytes, "a step of the model’s own training", `place ${at}`);
  model.library.openModel(model.keptInBytes && at !== undefined ? widened(bytes) : bytes, model.config, model.gguf ? 3 : 0);
  Object.assign(model, { at, plain: undefined });
}

// Returns what follows a text or, for an encoder, which does not write, how near the text is to another one.
function said({ library, size }, { sampling, other, pooling }) {
  if (!size.writes) return other ? { similar: library.cosine(library.encode(other).ids, pooling === "first") } : {};
  const drawn = library.draw(sampling);
  return { next: library.next(sampling), drawn, drawnToken: library.decode([drawn]).tokens[0] };
}

// Answers what follows a text that goes on, without steps: keys and values of all ids but the last are there already.
function ahead(model, asked) {
  const { library, size } = model, { number, ids } = asked, read = library.decode(ids.slice(-size.longest));
  library.read(read.ids);
  return [{ number, ahead: true, ...read, ...said(model, asked) }, []];
}

// `base`: the pass of this text without edits, where it was not read before.
function answer(model, asked) {
  hold(model, asked.at);
  if (asked.ahead) return ahead(model, asked);
  const { library, size } = model, { number, text, ids, edits, block } = asked;
  let read = ids ? library.decode(ids) : library.encode(text), base;
  const cut = read.ids.length > size.context;
  expect(ids || read.ids.length, "a text of at least one token", "none");
  // An encoder reads a text between tokens that stand at its ends.
  expect(!cut || size.writes, `at most ${size.context} tokens, as this model takes`, read.ids.length);
  if (cut) read = library.decode(read.ids.slice(-size.context));
  if (edits.length && model.plain !== read.ids.join()) library.run(read.ids), base = library.blocks();
  library.run(read.ids, edits);
  model.plain = read.ids.join();
  const follows = said(model, asked), blocks = library.blocks();
  const numbers = [...blocks, ...base ?? []].flatMap(({ steps }) => steps.map((step) => step.values.buffer));
  return [{ number, text: text ?? read.tokens.join(""), ...read, cut, base: edits.length ? base : blocks, blocks, shown: Math.min(block, blocks.length - 1), ...follows }, numbers];
}
// The parts that take long and are not seen first come behind the answer, once nothing else is asked. A number that was changed
// does not follow from what was before it: that is no fault, so that nothing is checked.
function post(model, { number, edits }, [answered, numbers]) {
  rest = answered.ahead ? undefined : { model, number, edits, at: answered.shown };
  postMessage(answered, numbers);
}
function postRest() {
  if (waiting || !rest || rest.model !== opened) return;
  const { number, at, edits, model: { library } } = rest;
  rest = undefined;
  postMessage({ number, at, space: library.space(at), health: edits.length ? [] : library.checks() });
}

function work() {
  const asked = waiting;
  waiting = undefined;
  try { post(opened, asked, answer(opened, asked)); } catch (error) { postMessage({ number: asked.number, error: error.message }); }
  setTimeout(postRest);
}

async function start({ engine, model, kept, keptInBytes }) {
  code = await compiled(engine);
  if (model.inBytes) model.weights = widened(model.weights);
  opened = openModel(model);
  if (kept.length) Object.assign(opened, { weights: model.weights, kept, keptInBytes });
  postMessage({ opened: opened.size, code });
}

// Another model takes the place of the one that is open once it has read the text; of several the last one chosen.
async function openOwn(asked) {
  chosen = asked.number;
  const { name, left, ...model } = await openFiles(asked.files);
  if (asked.number !== chosen) return;
  const [answered, numbers] = answer(model, asked);
  opened = model;
  post(model, asked, [{ ...answered, file: { ...model.size, name, left } }, numbers]);
  setTimeout(postRest);
}

// Names heads by what they do while the beginning of the text is read twice, as attn report reads it.
function postNames({ number, names }) {
  const { library, size: { context, writes } } = opened, count = Math.min(64, Math.floor(context / 2), names.length);
  if (writes && count > 1) postMessage({ number, names: { ...library.names(names.slice(0, count)), count } });
}

// One of the experiments of attn experiment, on the ids that were read; in patching `other` is the second text. Of many
// passes a tenth of a second's are run at a time: the page asks for more, or for something else, which is not kept waiting.
function experiment({ number, turn, experiment: kind, other, ids, edits, at, goesOn }) {
  hold(opened, at);
  const { library, size } = opened, read = ids.slice(-size.context);
  expect(kind !== "patching" || other, "a second text, of as many tokens", "none");
  const begun = () => (kind === "patching" ? library.patching(read, library.encode(other).ids, edits) : library[kind](read, edits));
  const found = goesOn ? library.goOn(Math.max(1, Math.floor(atOnce / read.length / size.weights))) : begun();
  postMessage({ number, turn, experiment: kind, found: { ...found, texts: library.decode(read).tokens } });
}
const postSpace = ({ number, space }) => postMessage({ number, at: space, space: opened.library.space(space) });

// A page asks these beside a text, each by the field that only its message has. A failure is told with what was asked.
const jobs = { engine: start, files: openOwn, space: postSpace, names: postNames, experiment };
onmessage = async ({ data }) => {
  const job = Object.keys(jobs).find((name) => data[name] !== undefined), { number, turn } = data;
  if (job) {
    try { await jobs[job](data); } catch (error) { postMessage({ number, turn, experiment: data.experiment, [data.engine ? "failed" : "error"]: error.message }); }
    return;
  }
  if (!waiting) setTimeout(work);  // behind the messages that are there already
  waiting = data;
};
