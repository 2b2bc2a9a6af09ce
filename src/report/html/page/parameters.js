// Reads for the panels what the report says of its module: each head's weights, how positions turn, scale and mask.

const config = report.config;
const isWrapper = Object.hasOwn(report.parameters, "heads.0.W_query.weight");
const stepAt = (name) => openBlock()?.step(name);

// A Linear, x · Wᵀ + b, whose column c is row from + c of its weight: at(i, c) is the weight from input i to it.
function linear(name, from = 0) {
  const weight = parameter(`${name}.weight`), bias = parameter(`${name}.bias`), inputs = weight?.shape[1];
  return weight && { inputs, at: (i, c) => weight.values[(from + c) * inputs + i], bias: bias && ((c) => bias.values[from + c]) };
}
// The projection of one head, whose columns are so many.
function projection(which, head, size) {
  const prefix = isWrapper ? `heads.${head}.` : "", plain = parameter(prefix + which);
  if (!plain) return linear(prefix + which, isWrapper ? 0 : head * size);
  const [inputs, columns] = plain.shape;  // self-v1: (d_in, d_out), x · W
  return { inputs, at: (i, c) => plain.values[i * columns + c] };
}

const headSize = () => (stepAt("queries") ?? stepAt("inputs"))?.columns ?? 0;

// ---- rotary positions: which number a number turns with, and how far -----------------------
function turnOf(at, position) {
  const { invFreq, factor, interleaved } = config.rope, half = invFreq.length, plain = config.latents?.plain ?? 0, column = at - plain;
  if (column < 0 || column >= 2 * half) return undefined;
  const pair = interleaved ? column >> 1 : column % half, second = interleaved ? column % 2 === 1 : column >= half;
  const other = plain + (interleaved ? column ^ 1 : second ? column - half : column + half);
  const angle = Math.fround(Math.fround(position) * Math.fround(invFreq[pair]));
  return { other, angle, rate: invFreq[pair], cos: Math.cos(angle) * factor, sin: (second ? 1 : -1) * Math.sin(angle) * factor };
}

// The factor of the scores: the module's, or what the recorded steps say.
function scaleFactor() {
  if (report.module === "simple") return 1;
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

function isCausal() {
  if (config) return config.causal && report.kind?.mask;
  const { rows, columns } = stepAt("weights");
  return rows === columns && String(openBlock().masked(0)) === String(future(rows, columns));
}
