// A page's worker: it opens what the page hands it, and answers each request with all that follows from a text. Of
// requests that have come meanwhile the latest is answered, and the others are passed over.
let library, size, waiting;

function answer({ number, text, ids, edits, sampling }) {
  let read = ids ? library.decode(ids) : library.encode(text);
  const cut = read.ids.length > size.context;
  if (cut) read = library.decode(read.ids.slice(-size.context));
  library.run(read.ids, edits);
  const next = library.next(sampling), drawn = library.draw(sampling), { blocks, health } = library.blocks();
  postMessage({ number, text, ...read, cut, plain: edits.length === 0, blocks, health, next, drawn, drawnToken: library.decode([drawn]).tokens[0] }, blocks.flatMap(({ steps }) => steps.map((step) => step.values.buffer)));
}

function work() {
  const asked = waiting;
  waiting = undefined;
  if (!asked) return;
  try { answer(asked); } catch (error) { postMessage({ number: asked.number, error: error.message }); }
}

async function open({ engine, model }) {
  const stream = new Blob([engine]).stream().pipeThrough(new DecompressionStream("gzip"));
  library = new Library(await WebAssembly.compile(await new Response(stream).arrayBuffer()));
  const { weights, config, tokenizer, tokenizerConfig } = model, gguf = weights[0] === 71 && weights[1] === 71;
  size = library.openModel(weights, config, gguf ? 3 : 0);
  library.openTokenizer(tokenizer, tokenizerConfig, gguf ? weights : new Uint8Array());
  postMessage({ opened: size });
}

onmessage = ({ data }) => {
  if (data.engine) { open(data).catch((error) => postMessage({ failed: error.message })); return; }
  if (!waiting) setTimeout(work);  // behind the messages that are there already
  waiting = data;
};
