// What the report says of its module, as the panels read it: each head's weights, how positions turn, the scale, the mask.

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
    return { inputs, size: columns, at: (i, c) => plain.values[i * columns + c], bias: () => 0 };
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

// Whether PyTorch's generator with this seed draws the weights.
const weightsAreSeeded = () => report.randomWeights && report.seed !== null;
