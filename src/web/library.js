"use strict";
// The library in a page: the functions of src/web/door.hpp, with texts and arrays in place of addresses. An error has the
// library's own words, and the next call is answered all the same.

class LibraryError extends Error {}
function expect(holds, expected, found) { if (!holds) throw new LibraryError(`[page] expected ${expected}; found ${found}`); }
// Marks and letters that are younger than Unicode 9, whose tables the tokenizers package has: no normal form alters them.
const younger = /([\u{7fd}\u{897}-\u{89f}\u{8ca}-\u{8d3}\u{9fe}\u{c3c}\u{d3b}-\u{d3c}\u{eba}\u{1715}\u{1abf}-\u{1add}\u{1ae0}-\u{1aeb}\u{1df6}-\u{1dfa}\u{a82c}\u{105c9}\u{105d2}\u{105da}\u{105e4}\u{10d24}-\u{10d27}\u{10d69}-\u{10d6d}\u{10eab}-\u{10eac}\u{10efa}-\u{10efb}\u{10efd}-\u{10eff}\u{10f46}-\u{10f50}\u{10f82}-\u{10f85}\u{11070}\u{1133b}\u{11382}-\u{11385}\u{1138b}\u{1138e}\u{11390}-\u{11391}\u{113b8}\u{113bb}\u{113c2}\u{113c5}\u{113c7}-\u{113c9}\u{113ce}-\u{113d0}\u{1145e}\u{11839}-\u{1183a}\u{11930}\u{11935}\u{11938}\u{1193d}-\u{1193e}\u{11943}\u{119e0}\u{11a34}\u{11a47}\u{11a99}\u{11d42}\u{11d44}-\u{11d45}\u{11d97}\u{11f41}-\u{11f42}\u{1611e}-\u{16129}\u{1612f}\u{16d63}\u{16d67}-\u{16d6a}\u{16ff0}-\u{16ff1}\u{1e08f}\u{1e130}-\u{1e136}\u{1e2ae}\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}-\u{1e5ef}\u{1e6e3}\u{1e6e6}\u{1e6ee}-\u{1e6ef}\u{1e6f5}]+)/u;
const noMemory = "[page] expected memory for the work; found no more";

// The library's code, of the bytes that a page holds.
async function compiled(engine) {
  const stream = new Blob([engine]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}
// How a safetensors file begins whose header this is: its length, and its text with blanks up to a multiple of eight.
function beginning(header) {
  const json = new TextEncoder().encode(JSON.stringify(header)), size = 8 * Math.ceil(json.length / 8), bytes = new Uint8Array(8 + size).fill(32);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(size), true);
  bytes.set(json, 8);
  return bytes;
}

class Library {
  // `system` answers what a C library asks its system for: there are no files here, and no variables.
  constructor(module) {
    const view = () => new DataView(this.memory.buffer), none = () => 8;
    const system = {
      environ_sizes_get: (count, bytes) => { view().setUint32(count, 0, true); view().setUint32(bytes, 0, true); return 0; },
      environ_get: () => 0, sched_yield: () => 0,
      clock_time_get: (clock, precision, at) => { view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true); return 0; },
      proc_exit: () => { throw new LibraryError(noMemory); },
    };
    const needed = Object.fromEntries(WebAssembly.Module.imports(module).map(({ name }) => [name, system[name] ?? none]));
    const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: needed, attn: { failed: (at) => { throw new LibraryError(this.text(at).replace("std::bad_alloc", noMemory)); }, number: (at) => Number(this.text(at)), print: (...given) => this.print(...given), normal: (...given) => this.normal(...given) } });
    this.exports = instance.exports;
    this.memory = this.exports.memory;
    this.exports._initialize();
  }
  text(at, most) {
    const bytes = new Uint8Array(this.memory.buffer, at >>> 0, most), end = bytes.indexOf(0);
    return new TextDecoder().decode(bytes.subarray(0, end < 0 ? most : end));
  }
  normal(at, bytes, composed, to, room) {
    const memory = (from, count) => new Uint8Array(this.memory.buffer, from >>> 0, count), text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(memory(at, bytes));
    const normal = text.split(younger).map((part, i) => i % 2 ? part : part.normalize(composed ? "NFC" : "NFD")).join("");
    return new TextEncoder().encodeInto(normal, memory(to, room)).written;
  }
  // C's snprintf(), of integers, texts and numbers with at most so many digits.
  print(to, room, format, args) {
    const view = new DataView(this.memory.buffer);
    const take = (bytes) => { args = Math.ceil(args / bytes) * bytes + bytes; return args - bytes; };
    const written = this.text(format).replace(/%0?(\d*)\.?(\*|\d*)(l+|z|)([a-z])/gi, (all, width, digits, size, kind) => {
      if (digits === "*") digits = view.getInt32(take(4), true);
      if (kind === "s") return this.text(view.getUint32(take(4), true), digits === "" ? undefined : digits);
      const number = "fg".includes(kind) ? view.getFloat64(take(8), true) : size === "ll" ? view.getBigInt64(take(8), true) : kind === "d" ? view.getInt32(take(4), true) : view.getUint32(take(4), true);
      if (kind === "f") return number.toFixed(digits || 6);
      if (kind === "g") return String(Number(number.toPrecision(digits || 6)));
      return number.toString(/x/i.test(kind) ? 16 : 10).padStart(Math.max(width, digits), "0");
    });
    const bytes = new Uint8Array(this.memory.buffer, to, room), text = new TextEncoder().encode(written);
    bytes.set(text.subarray(0, room - 1));
    bytes[Math.min(text.length, room - 1)] = 0;
    return text.length;
  }
  // Texts become zero-ended UTF-8, lists of ids and byte arrays their address and count, other arrays their address.
  call(name, ...values) {
    const held = [], stack = this.exports.__stack_pointer.value;
    const keep = (bytes) => { const at = this.exports.attn_new(Math.max(bytes.length, 1)) >>> 0; held.push(at); new Uint8Array(this.memory.buffer, at).set(bytes); return at; };
    const given = (value) => {
      const ids = Array.isArray(value) ? Int32Array.from(value) : undefined;
      const wrong = ids && value.find((id, i) => id !== ids[i]);
      expect(wrong === undefined, "ids of at most 32 bits", wrong);
      expect(typeof value !== "string" || !value.includes("\0"), "a text without the character U+0000", "one with it");
      if (typeof value === "string") return keep(new TextEncoder().encode(`${value}\0`));
      if (value instanceof Uint8Array) return [keep(value), value.length];
      if (ids) return [keep(new Uint8Array(ids.buffer)), ids.length];
      return ArrayBuffer.isView(value) ? keep(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)) : value;
    };
    try {
      return this.exports[`attn_${name}`](...values.flatMap(given));
    } catch (error) {
      this.exports.__stack_pointer.value = stack;  // where the call has left it
      if (error instanceof LibraryError) throw error;
      throw new LibraryError(`[page] expected a call that ends; found ${error.message}`);
    } finally {
      for (const at of held) this.exports.attn_delete(at);
    }
  }
  json(name, ...values) { return JSON.parse(this.text(this.call(name, ...values))); }

  // config: the text of a config.json, or "" where the file has one. weights: 0 float32, 1 bfloat16, 2 int8, 3 as in the file.
  openModel(bytes, config = "", weights = 0) { return this.json("open_model", bytes, config, weights); }
  openTokenizer(json = "", config = "", gguf = new Uint8Array()) { return this.call("open_tokenizer", json, config, gguf); }
  openModule(config, weights = new Uint8Array()) { this.call("open_module", JSON.stringify(config), weights); }
  encode(text) { return this.json("encode", text); }
  decode(ids) { return this.json("decode", ids); }
  // Returns { tokens, values } of a module's text: its words, and a vector of `width` numbers for each.
  embed(text, width) {
    const { tokens, at } = this.json("embed", text, width);
    return { tokens, values: this.floats(at, tokens.length * width) };
  }
  run(ids, edits = []) { this.call("run", ids, JSON.stringify(edits)); }
  runModule(x, tokens, width, source = new Float32Array(), sources = 0, edits = []) { this.call("run_module", x, tokens, width, source, sources, JSON.stringify(edits)); }
  // Each step has { name, kind, ofKeys, meaning, shape, values }; checks() and space() take longer, and tell the others.
  blocks() {
    const { blocks } = this.json("blocks");
    for (const { steps } of blocks) for (const step of steps) step.values = this.floats(step.at, step.shape.reduce((a, b) => a * b, 1));
    return blocks;
  }
  checks() { return this.json("checks").health; }
  space(block) { return this.json("space", block).space; }
  lens(ids, edits = []) { return this.json("lens", ids, JSON.stringify(edits)); }
  effects(ids, edits = []) { return this.json("effects", ids, JSON.stringify(edits)); }
  goOn(most) { return this.json("go_on", most); }
  patching(ids, other, edits = []) { return this.json("patching", ids, other, JSON.stringify(edits)); }
  // Returns how near an encoder's vector of the text that was read is to that of other ids, and that without edits.
  cosine(other, first) { return this.json("cosine", other, Number(first)); }
  names(ids) { return this.json("names", ids); }
  // Each row by itself, a way that attn_rows() of door.hpp names.
  rows(way, values, columns) { return this.floats(this.call("rows", way, Float32Array.from(values), values.length / columns, columns), values.length); }
  floats(at, count) { return new Float32Array(this.memory.buffer, at >>> 0, count).slice(); }
  // [{ name, shape, values }]: views, which the next run makes void.
  steps() {
    return this.json("steps").map(({ at, ...step }) => ({ ...step, values: new Float32Array(this.memory.buffer, at, step.shape.reduce((a, b) => a * b, 1)) }));
  }
  // Reads ids without steps, by the cache of those that were read before: what may follow is all that is told.
  read(ids) { this.call("read", ids); }
  next({ temperature = 1, topK = 0, topP = 1, most = 20 } = {}) { return this.json("next", temperature, topK, topP, most); }
  draw({ temperature = 1, topK = 0, topP = 1, seed = 0 } = {}) { return this.call("draw", temperature, topK, topP, seed); }
}
