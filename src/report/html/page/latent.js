// Latent attention: where the numbers of a latent come from, and of what is made of it.

const sizes = report.config?.latents;

// A step's number as a row of a matrix with a row of another step.
function ofMatrix(name, from, title, of, letter, row, { result }, say) {
  const weight = parameter(`${name}.weight`), bias = parameter(`${name}.bias`);
  if (!weight) return byColumn(title, [], of, row, undefined, 0, result);
  const inputs = weight.shape[1];
  return byColumn(title, ["dimension", letter, name], of, row, { inputs, at: (i) => weight.values[from * inputs + i], hasBias: Boolean(bias), bias: () => bias.values[from] }, 0, result, say);
}

// A number over the root mean square of all of them, times the norm's weight.
function ofNorm(name, values, title, { column, result }) {
  const weight = parameter(`${name}.weight`);
  if (!weight || !values) return missing(title, result, "What it is the norm of is not in this report.");
  const root = Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / values.length + config.epsilon), times = weight.values[column];
  return given(title, result, "RMSNorm: divided by the root of the mean of the squares, times the norm’s weight.",
    { total: values[column] / root * times, written: `${minus(values[column])} / ${format(root)}${dot}${minus(times)}` });
}

function latentOfQuery({ block, query, q, column, result }) {
  const title = `latent of the query(${q})[${column + 1}]`, weight = parameter("q_a_proj.weight"), bias = parameter("q_a_proj.bias"), x = block.step("inputs");
  if (!weight || !x) return missing(title, result, "The projection’s weights are not in this report.");
  const [outputs, inputs] = weight.shape;
  const low = Array.from({ length: outputs }, (_, o) => Array.from({ length: inputs }, (_, i) => x.at(0, query, i) * weight.values[o * inputs + i]).reduce((sum, y) => sum + y, bias?.values[o] ?? 0));
  return ofNorm("q_a_layernorm", low, title, { column, result });
}

function queryOfLatent(a) {
  const { block, head, query, q, column } = a, low = block.step("query latents");
  return ofMatrix(low ? "q_b_proj" : "q_proj", head * (sizes.plain + sizes.rotary) + column, `q(${q})[${column + 1}]`, low ?? block.step("inputs"), low ? `latent(${q})` : `x(${q})`, query, a,
    `The ${low ? "query’s latent" : "row of x"} times a row of this head’s W_q.`);
}

function keyOfLatent(a) {
  const { block, head, key, k, column } = a, title = `k(${k})[${column + 1}]`;
  if (column >= sizes.plain) {
    return ofMatrix("kv_a_proj_with_mqa", sizes.latent + column - sizes.plain, title, block.step("inputs"), `x(${k})`, key, a, "The part of a key that turns by its position. It is the same in all heads, and a cache keeps it beside the latent.");
  }
  return ofMatrix("kv_b_proj", head * (sizes.plain + sizes.value) + column, title, block.step("latents"), `latent(${k})`, key, a, "The latent times a row of this head’s W_k.");
}

const valueOfLatent = (a) => ofMatrix("kv_b_proj", a.head * (sizes.plain + sizes.value) + sizes.plain + a.column, `v(${a.k})[${a.column + 1}]`, a.block.step("latents"), `latent(${a.k})`, a.key, a, "The latent times a row of this head’s W_v.");

Object.assign(explanations, {
  compressed: (a) => ofMatrix("kv_a_proj_with_mqa", a.column, `compressed(${a.k})[${a.column + 1}]`, a.block.step("inputs"), `x(${a.k})`, a.key, a, "The row of x times a row of W_a: fewer numbers, of which all keys and values are made."),
  latents: (a) => {
    const from = a.block.step("compressed");
    return ofNorm("kv_a_layernorm", from && Array.from({ length: from.columns }, (_, c) => from.at(0, a.key, c)), `latent(${a.k})[${a.column + 1}]`, a);
  },
  "query latents": latentOfQuery,
  ...(sizes && { queries: queryOfLatent, keys: keyOfLatent, values: valueOfLatent }),
});

// The layers by the names of DeepSeek's, drawn in their order.
function torchLatent() {
  const c = config, { query, latent, plain, rotary, value } = sizes, heads = c.num_heads, key = plain + rotary;
  const linear = (name, from, to, bias) => torchLinear(name, from, to, bias && c.qkv_bias), norm = (name, size) => `${name} = torch.nn.RMSNorm(${size}, eps=1e-06)`;
  const lines = query ? [linear("q_a_proj", c.d_in, query, true), norm("q_a_layernorm", query), linear("q_b_proj", query, heads * key)] : [linear("q_proj", c.d_in, heads * key)];
  lines.push(linear("kv_a_proj_with_mqa", c.d_in, latent + rotary, true), norm("kv_a_layernorm", latent), linear("kv_b_proj", latent, heads * (plain + value)), linear("o_proj", heads * value, c.d_out, true));
  lines.push("", "def split(y):  # (heads, tokens, numbers of a head)", `    return y.view(len(x), ${heads}, -1).transpose(0, 1)`, "");
  lines.push(`queries = split(${query ? "q_b_proj(q_a_layernorm(q_a_proj(x)))" : "q_proj(x)"})`, `latents, shared = kv_a_proj_with_mqa(x).split([${latent}, ${rotary}], dim=-1)`,
    `keys, values = split(kv_b_proj(kv_a_layernorm(latents))).split([${plain}, ${value}], dim=-1)`);
  if (c.rope) lines.push(`queries, shared = torch.cat([queries[..., :${plain}], turned(queries[..., ${plain}:])], dim=-1), turned(shared)`);
  return [...lines, `keys = torch.cat([keys, shared.expand(${heads}, -1, -1)], dim=-1)`, ...torchWeights(key), `z = o_proj((weights @ values).transpose(0, 1).reshape(-1, ${heads * value}))`, "print(z)"];
}
