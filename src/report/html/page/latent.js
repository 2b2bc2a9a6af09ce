// Latent attention: where the numbers of a latent come from, and of what is made of it.

const sizes = report.config?.latents;

// A number over the root mean square of all of them, times the norm's weight.
function ofNorm(name, values, { column }) {
  const weight = parameter(`${name}.weight`);
  if (!weight || !values) return missing("What it is the norm of is not in this report.");
  const root = Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / values.length + config.epsilon), times = weight.values[column];
  return { say: "RMSNorm: divided by the root of the mean of the squares, times the norm’s weight.",
    total: values[column] / root * times, written: `${minus(values[column])} / ${format(root)}${dot}${minus(times)}` };
}

// A row through a Linear.
const through = (x, p) => x && p && ((_, c) => x.reduce((sum, y, i) => sum + y * p.at(i, c), p.bias?.(c) ?? 0));

// Parts of matrices that all heads share: this head's rows begin at `from`.
function ofLatent(a, of, name, from, say) {
  return projected(a, of, of?.name === "inputs" ? `x(${a.token})` : `latent(${a.token})`, name, linear(name, from), say);
}

Object.assign(explanations, {
  compressed: (a) => ofLatent(a, a.block.step("inputs"), "kv_a_proj_with_mqa", 0, "The row of x times a row of W_a: fewer numbers, of which all keys and values are made."),
  latents: (a) => ofNorm("kv_a_layernorm", a.block.step("compressed")?.row(0, a.key), a),
  "query latents": (a) => {
    const number = through(a.block.step("inputs")?.row(0, a.query), linear("q_a_proj"));
    return ofNorm("q_a_layernorm", number && Array.from({ length: a.step.columns }, number), a);
  },
}, sizes && {
  queries: (a) => {
    const low = a.block.step("query latents"), from = a.head * (sizes.plain + sizes.rotary);
    return low ? ofLatent(a, low, "q_b_proj", from, "The query’s latent times a row of this head’s W_q.") : ofLatent(a, a.block.step("inputs"), "q_proj", from, "The row of x times a row of this head’s W_q.");
  },
  keys: (a) => (a.column < sizes.plain ? ofLatent(a, a.block.step("latents"), "kv_b_proj", a.head * (sizes.plain + sizes.value), "The latent times a row of this head’s W_k.")
    : ofLatent(a, a.block.step("inputs"), "kv_a_proj_with_mqa", sizes.latent - sizes.plain, "The part of a key that turns by its position. It is the same in all heads, and a cache keeps it beside the latent.")),
  values: (a) => ofLatent(a, a.block.step("latents"), "kv_b_proj", a.head * (sizes.plain + sizes.value) + sizes.plain, "The latent times a row of this head’s W_v."),
});
