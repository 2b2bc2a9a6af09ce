"use strict";
// The report's numbers: decoded when first asked for, addressed by step, head, row and column.

const report = JSON.parse(document.getElementById("data").textContent);
report.keyTokens ??= report.tokens;

// Base64, or [first, count] of what was compressed with the block.
function bytesOf(stored, block) {
  if (Array.isArray(stored)) return block.bytes.slice(stored[0], stored[0] + stored[1]);
  const text = atob(stored), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}
const floatsOf = (stored, block) => new Float32Array(bytesOf(stored, block).buffer);

// One step of one block. at(head, row, column) is the library's number, or near it where `exact` is false.
class Step {
  constructor({ name, kind, ofKeys, meaning, data }, block) {
    Object.assign(this, { name, kind, ofKeys, meaning, data, block });  // kind: tokens, heads, scores, weights
    this.pairs = kind === "scores" || kind === "weights";
    this.exact = "f32" in data;
    this.pooled = "pool" in data;
    const shape = data.shape;
    this.planes = kind === "tokens" ? 1 : shape[0];
    this.rows = shape.at(-2);
    this.columns = shape.at(-1);
    this.rowLabels = ofKeys ? report.keyTokens : report.tokens;
    this.columnLabels = this.pairs ? report.keyTokens : numbers(this.columns);
  }
  get values() {
    return this.decoded ??= this.exact ? floatsOf(this.data.f32, this.block) : this.pooled ? null : this.unpacked();
  }
  unpacked() {
    const ranges = floatsOf(this.data.ranges, this.block), low = (i) => 2 * Math.floor(i / this.columns);
    return Float32Array.from(bytesOf(this.data.u8, this.block), (byte, i) => ranges[low(i)] + (ranges[low(i) + 1] - ranges[low(i)]) * byte / 255);
  }
  // Whose numbers a head has: groups of heads may share their keys and values.
  planeOf(head) { return Math.floor(head * this.planes / Math.max(this.block.heads, 1)); }
  at(head, row, column) {
    if (this.pooled) return pooledAt(this, head, row, column);
    return this.values[(this.planeOf(head) * this.rows + row) * this.columns + column];
  }
  row(head, row) { return Array.from({ length: this.columns }, (_, column) => this.at(head, row, column)); }
  // One head's numbers, the same object each time: what is drawn from it is drawn once.
  matrix(head) {
    const at = this.planeOf(head);
    return (this.matrices ??= [])[at] ??= this.pooled ? pooledMap(this, at) : this.plane(at);
  }
  plane(head) {
    const size = this.rows * this.columns, values = this.values.subarray(head * size, (head + 1) * size);
    const hidden = this.pairs ? this.block.masked(head) : undefined;
    // A masked key that has a weight all the same is not hidden.
    const masked = hidden && this.kind === "weights" ? hidden.map((yes, at) => (yes && values[at] === 0 ? 1 : 0)) : hidden;
    const changed = this.before && changedFrom(this.before.subarray(head * size, (head + 1) * size), values);
    return { rows: this.rows, columns: this.columns, values, masked, changed };
  }
}

const rowsOf = (values, columns) => Array.from({ length: values.length / columns }, (_, i) => values.subarray(i * columns, (i + 1) * columns));

// A byte for each place, 1 where this holds. A loop, since Uint8Array.from() took 3 ms of an answer to what is typed.
function whereThat(count, holds) {
  const bytes = new Uint8Array(count);
  for (let i = 0; i < count; i++) bytes[i] = holds(i) ? 1 : 0;
  return bytes;
}
const changedFrom = (before, values) => whereThat(values.length, (i) => !Object.is(values[i], before[i]));

// ---- weights of long inputs: a map of the largest of each f × f cells, and each row's largest exactly ----
function pool(step) {
  return step.pool ??= {
    bytes: bytesOf(step.data.u8, step.block), most: floatsOf(step.data.most, step.block), factor: step.data.pool,
    index: new Uint16Array(bytesOf(step.data.topIndex, step.block).buffer), value: floatsOf(step.data.topValue, step.block),
    rows: Math.ceil(step.rows / step.data.pool), columns: Math.ceil(step.columns / step.data.pool),
  };
}
// The largest weight of a cell; 252 to 255 are codes, the first of them for a cell that is masked.
const maskedCell = 252;
const cellValue = (byte, most) => (byte >= maskedCell ? [0, -Infinity, Infinity, NaN][byte - maskedCell] : most * (byte / 251) ** 2);
function pooledMap(step, head) {
  const { rows, columns, factor, bytes, most } = pool(step), cells = bytes.subarray(head * rows * columns, (head + 1) * rows * columns);
  const values = Float32Array.from(cells, (byte, i) => cellValue(byte, most[head * rows + Math.floor(i / columns)]));
  return { rows, columns, factor, values, masked: cells.map((byte) => (byte === maskedCell ? 1 : 0)) };
}
function pooledAt(step, head, row, column) {
  const known = topKeys(step, head, row).find((top) => top.key === column);
  if (known) return known.weight;
  const p = pool(step), line = head * p.rows + Math.floor(row / p.factor);
  return cellValue(p.bytes[line * p.columns + Math.floor(column / p.factor)], p.most[line]);
}
// The row's largest weights, exact, falling: all of them in an exact report.
function topKeys(step, head, row) {
  if (!step.pooled) return step.row(head, row).map((weight, key) => ({ key, weight })).sort((a, b) => b.weight - a.weight);
  const { index, value } = pool(step), count = step.data.top, from = (head * step.rows + row) * count;
  return Array.from({ length: count }, (_, i) => ({ key: index[from + i], weight: value[from + i] })).filter(({ key }) => key !== 65535);
}

// One layer: its steps, and what its mask hides. A layer that is compressed has neither until it is opened.
class Block {
  constructor(stored) { this.fill({ steps: [], ...stored }); }
  // Takes label, number, heads, scores, kinds, causal, space, sinks, steps and, where it is compressed, packed.
  fill({ steps, ...more }) { Object.assign(this, more, { steps: steps.map((step) => new Step(step, this)) }); }
  open() { return this.opening ??= this.unpack().catch((error) => told(this, error)); }
  // Four bytes with the length of a JSON text, the text, and the bytes that it names.
  async unpack() {
    const stream = new Blob([bytesOf(this.packed)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const end = 4 + new DataView(bytes.buffer).getUint32(0, true);
    this.bytes = bytes.subarray(end);
    this.fill({ packed: undefined, ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, end))) });
  }
  step(name) { return this.steps.find((step) => step.name === name); }
  softmaxInput() { return this.steps.findLast((step) => step.kind === "scores"); }
  // The step whose scores this one changes.
  before(name) { return this.steps.slice(0, Math.max(this.steps.indexOf(this.step(name)), 0)).findLast((step) => step.kind === "scores"); }
  // Returns a byte for each query and key of a head, 1 where the key is masked; undefined without a mask, or not exact.
  masked(head) {
    const step = this.step("masked");
    if (!report.exact || !(step || this.causal)) return undefined;
    const { rows, columns } = this.step("weights"), size = rows * columns;
    return (this.masks ??= [])[head] ??= step ? whereThat(size, (i) => step.values[head * size + i] === -Infinity) : future(rows, columns);
  }
  hides(head, query, key) { return this.masked(head)?.[query * report.keyTokens.length + key] === 1; }
}
// 1 where the key comes after the query.
const future = (rows, columns) => whereThat(rows * columns, (at) => at % columns > Math.floor(at / columns));
const blocks = report.blocks.map((block) => new Block(block));
const openBlock = () => blocks.find((block) => !block.packed);

// Returns what a map holds, and makes it where it is not there yet.
function held(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

// A parameter as { shape, values }, or undefined when this report does not hold it.
function parameter(name) {
  const stored = Object.hasOwn(report.parameters, name) ? report.parameters[name] : undefined;
  return stored?.f32 && Object.assign(stored, { values: stored.values ?? floatsOf(stored.f32) });
}

// Within two ends, a share as it stands.
const clamped = (x, low = 0, high = 1) => Math.min(Math.max(x, low), high);

// ---- text ----------------------------------------------------------------------------
function numbers(count) { return Array.from({ length: count }, (_, i) => String(i + 1)); }

// Four decimals as in the book; scientific where that would show nothing or too much.
function format(x, digits = 4) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text = size < 10 ** -digits / 2 || size >= 1e5 ? x.toExponential(digits - 2) : x.toFixed(digits);
  return text.replace("-", "−");
}
// Every digit that a float32 has.
function exactly(x) {
  if (!Number.isFinite(x)) return format(x);
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].find((count) => Math.fround(x.toPrecision(count)) === Math.fround(x));
  return String(digits ? Number(x.toPrecision(digits)) : x);
}
const percent = (share) => `${(100 * share).toFixed(1)} %`;
// Says in the unit of the page's text what is said of words and tokens: a model reads tokens, or bytes.
const say = (text) => text.replace(/\b(word|token)/g, report.unit).replace(/\bWord/g, report.unit[0].toUpperCase() + report.unit.slice(1));
// A token as a short label: what cannot be seen is named, outer blanks too; marks of direction do not act.
function word(token, most = 14) {
  if (token === "") return "∅";
  if (/^(\\x[0-9A-F]{2})+$/i.test(token)) return `byte${token.length > 4 ? "s" : ""} ${token.slice(2).replaceAll("\\x", " ").toUpperCase()}`;
  const shown = token.slice(0, 8 * most).replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length))
    .replace(/[\0-\x1f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\p{Cc}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}/gu, "\ufffd");
  const characters = Array.from(shown);
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : shown;
}
