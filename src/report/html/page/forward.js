// The module computed anew in the page, from the embedded weights: what the experiments change and compare.
// As in the library each step is summed in float64 and stored as float32.

const config = report.config;
const simplified = report.module === "simple";
const isWrapper = Object.hasOwn(report.parameters, "heads.0.W_query.weight");
const stepAt = (name) => openBlock()?.step(name);

// The projection of one head: at(i, c) is the weight from input i to its column c.
function projection(which, head, size) {
  const prefix = isWrapper ? `heads.${head}.` : "";
  const plain = parameter(prefix + which);  // self-v1: (d_in, d_out), x · W
  if (plain) {
    const [inputs, columns] = plain.shape;
    return { inputs, size: columns, at: (i, c) => plain.values[i * columns + c], bias: () => 0, hasBias: false };
  }
  const weight = parameter(`${prefix + which}.weight`), bias = parameter(`${prefix + which}.bias`);
  if (!weight) return undefined;
  const [outputs, inputs] = weight.shape, from = isWrapper || which === "out_proj" ? 0 : head * size;  // nn.Linear: x · Wᵀ
  return {
    inputs, size: Math.min(size, outputs), at: (i, c) => weight.values[(from + c) * inputs + i],
    bias: (c) => (bias ? bias.values[from + c] : 0), hasBias: Boolean(bias),
  };
}

const headSize = () => stepAt("queries")?.columns ?? (config && report.module !== "average" ? config.d_out / (isWrapper ? 1 : config.num_heads) : stepAt("inputs")?.columns ?? 0);

// Everything needed is here: inputs and, but for the simplified way, the weights.
function canRecompute() {
  if (blocks.length !== 1 || !report.exact || !stepAt("inputs") || report.module === "average" || report.kind?.recurrent) return false;
  return simplified || Boolean(projection("W_query", 0, headSize()));
}

function project(x, rows, p) {
  const out = new Float32Array(rows * p.size);
  for (let i = 0; i < rows; i++) {
    for (let c = 0; c < p.size; c++) {
      let sum = p.bias(c);
      for (let k = 0; k < p.inputs; k++) sum += x[i * p.inputs + k] * p.at(k, c);
      out[i * p.size + c] = sum;
    }
  }
  return out;
}

// ---- rotary positions: which number a number turns with, and how far -----------------------
function turnOf(at, position) {
  const { invFreq, factor, interleaved } = config.rope, half = invFreq.length, plain = config.latents?.plain ?? 0, column = at - plain;
  if (column < 0 || column >= 2 * half) return undefined;
  const pair = interleaved ? column >> 1 : column % half, second = interleaved ? column % 2 === 1 : column >= half;
  const other = plain + (interleaved ? column ^ 1 : second ? column - half : column + half);
  const angle = Math.fround(Math.fround(position) * Math.fround(invFreq[pair]));
  return { other, angle, rate: invFreq[pair], cos: Math.cos(angle) * factor, sin: (second ? 1 : -1) * Math.sin(angle) * factor };
}

function rotate(x, d) {
  if (!config?.rope) return x;
  return x.map((value, at) => {
    const row = Math.floor(at / d), turn = turnOf(at % d, row);
    return turn ? value * turn.cos + x[row * d + turn.other] * turn.sin : value;
  });
}

function scoresOf(q, k, tq, tk, d) {
  const out = new Float32Array(tq * tk);
  for (let i = 0; i < tq; i++) {
    for (let j = 0; j < tk; j++) {
      let sum = 0;
      for (let c = 0; c < d; c++) sum += q[i * d + c] * k[j * d + c];
      out[i * tk + j] = sum;
    }
  }
  return out;
}

function softmaxRow(row) {
  let most = -Infinity, sum = 0;
  for (const x of row) most = x > most || Number.isNaN(x) ? x : most;
  if (most === -Infinity) return row.map(() => 0);
  const e = Array.from(row, (x) => Math.exp(x - most));
  for (const x of e) sum += x;
  return e.map((x) => x / sum);
}

function softmaxRows(s, columns) {
  const out = new Float32Array(s.length);
  for (let at = 0; at < s.length; at += columns) out.set(softmaxRow(s.subarray(at, at + columns)), at);
  return out;
}

// A zero weight takes nothing from its value.
function weightedSum(w, v, tq, tk, d) {
  const out = new Float32Array(tq * d);
  for (let i = 0; i < tq; i++) {
    for (let c = 0; c < d; c++) {
      let sum = 0;
      for (let j = 0; j < tk; j++) if (w[i * tk + j] !== 0) sum += w[i * tk + j] * v[j * d + c];
      out[i * d + c] = sum;
    }
  }
  return out;
}

// The factor of the scores: the module's, or what the recorded steps say.
function scaleFactor() {
  if (simplified) return 1;
  if (config?.scale !== null && config?.scale !== undefined) return config.scale;
  const root = 1 / Math.sqrt(headSize());
  if (!stepAt("scaled")) return config ? root : 1;
  const scores = stepAt("scores")?.values, scaled = stepAt("scaled").values;
  let most = 0, factor = root;
  scores?.forEach((s, i) => {
    if (Number.isFinite(s) && Math.abs(s) > most) most = Math.abs(s), factor = scaled[i] / s;
  });
  return Math.abs(factor / root - 1) < 1e-5 ? root : factor;
}

const isCausal = () => (config ? config.causal && report.kind?.mask : looksCausal());
function looksCausal() {
  const masked = stepAt("masked");
  if (!masked?.exact || masked.rows !== masked.columns) return false;
  return masked.values.every((x, at) => {
    const i = Math.floor(at / masked.columns) % masked.rows;
    return (x === -Infinity) === (at % masked.columns > i);
  });
}

// One pass: x (tq, d_in) and source (tk, d_in) as arrays → the heads' steps, merged and output.
function forward(x, source, { causal = isCausal() } = {}) {
  const inputs = stepAt("inputs"), tq = inputs.rows, tk = (stepAt("source") ?? inputs).rows, d = headSize();
  const factor = scaleFactor();
  const heads = Array.from({ length: blocks[0].heads }, (_, head) => {
    const of = (which, rows, from) => simplified ? from : project(from, rows, projection(which, head, d));
    const queries = of("W_query", tq, x), keys = of("W_key", tk, source), values = of("W_value", tk, source);
    const scores = scoresOf(rotate(queries, d), rotate(keys, d), tq, tk, d), scaled = scores.map((s) => s * factor);
    const masked = scaled.map((s, at) => (causal && at % tk > Math.floor(at / tk) ? -Infinity : s));
    const weights = softmaxRows(masked, tk);
    return { queries, keys, values, scores, scaled, masked, weights, context: weightedSum(weights, values, tq, tk, d) };
  });
  const width = d * heads.length, merged = new Float32Array(tq * width);
  heads.forEach(({ context }, head) => {
    for (let i = 0; i < tq; i++) merged.set(context.subarray(i * d, (i + 1) * d), i * width + head * d);
  });
  const out = projection("out_proj", 0, width);
  return { heads, width, merged, output: out ? project(merged, tq, out) : merged };
}
const sourceOf = () => (stepAt("source") ?? stepAt("inputs")).values;
