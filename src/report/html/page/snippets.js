// The same computation to take away: in PyTorch, and with this library.

function inputLines(step, name) {
  if (!step?.exact || step.rows * step.columns > 96) return [`${name} = torch.from_numpy(numpy.load("${name}.npy"))  # (tokens, ${config?.d_in ?? step?.columns ?? "d_in"})`];
  const rows = Array.from({ length: step.rows }, (_, i) => `    [${Array.from({ length: step.columns }, (_, c) => exactly(step.at(0, i, c))).join(", ")}],`);
  return [`${name} = torch.tensor([`, ...rows, "])"];
}

// Queries and keys turn by their positions.
function torchRotation({ invFreq, factor, interleaved }) {
  const n = invFreq.length, scaled = factor === 1 ? "" : ` * ${exactly(factor)}`;
  const [a, b] = interleaved ? [`0:${2 * n}:2`, `1:${2 * n}:2`] : [`:${n}`, `${n}:${2 * n}`];
  const pairs = interleaved ? "torch.stack([first, second], dim=-1).flatten(-2)" : "first, second";
  return ["def turned(x):  # (…, tokens, head size)", `    rates = torch.tensor([${invFreq.map((x) => exactly(x)).join(", ")}])`,
    "    angles = torch.arange(x.shape[-2])[:, None] * rates", `    cos, sin = angles.cos()${scaled}, angles.sin()${scaled}`,
    `    a, b = x[..., ${a}], x[..., ${b}]`, "    first, second = a * cos - b * sin, b * cos + a * sin",
    `    return torch.cat([${pairs}, x[..., ${2 * n}:]], dim=-1)`, ""];
}

const torchLinear = (name, from, to, bias) => `${name} = torch.nn.Linear(${from}, ${to}, bias=${bias ? "True" : "False"})`;
// In the order in which the module draws its weights.
const projectionNames = () => (config.layer_order === "kqv" ? ["key", "query", "value"] : ["query", "key", "value"]);
// Queries and keys of this size become weights.
function torchWeights(size) {
  const scale = scaleFactor(), root = Math.abs(scale * Math.sqrt(size) - 1) < 1e-6;
  return [`scores = queries @ keys.transpose(-2, -1)${root ? ` / ${size} ** 0.5` : ` * ${exactly(scale)}`}`,
    ...(isCausal() ? ["future = torch.triu(torch.ones(len(x), len(x), dtype=torch.bool), diagonal=1)", "scores = scores.masked_fill(future, -torch.inf)"] : []), "weights = torch.softmax(scores, dim=-1)",
    ...(report.training && config.dropout > 0 ? [`weights = torch.nn.functional.dropout(weights, ${config.dropout})`] : [])];
}

function torchProjected() {
  const c = config, heads = c.num_heads, cross = report.kind.source, source = cross ? "source" : "x", wrapper = report.module === "heads";
  const size = wrapper ? c.d_out : c.d_out / heads, names = projectionNames(), lines = names.map((name) => torchLinear(`W_${name}`, c.d_in, c.d_out, c.qkv_bias));
  if (c.out_proj && report.kind.outProj) lines.push(`out_proj = torch.nn.Linear(${c.d_out}, ${c.d_out})`);
  const split = wrapper || heads === 1 ? "" : `.view(-1, ${heads}, ${size}).transpose(0, 1)`, body = [];
  body.push(`queries = W_query(x)${split}`, `keys = W_key(${source})${split}`, `values = W_value(${source})${split}`);
  if (c.rope) body.push("queries, keys = turned(queries), turned(keys)");
  body.push(...torchWeights(size), "context = weights @ values");
  if (!wrapper) return [...lines, "", ...body, `z = ${heads > 1 ? `context.transpose(0, 1).reshape(-1, ${c.d_out})` : "context"}`,
    ...(lines.length > 3 ? ["z = out_proj(z)"] : []), "print(z)"];
  return [`${torchLinear("heads", c.d_in, c.d_out, c.qkv_bias).replace("= ", "= [[")} for _ in range(3)] for _ in range(${heads})]`, "contexts = []", `for W_${names[0]}, W_${names[1]}, W_${names[2]} in heads:`, ...body.map((line) => `    ${line}`), "    contexts.append(context)", "z = torch.cat(contexts, dim=-1)", "print(z)"];
}

// A state for each head, token by token.
function torchRecurrent() {
  const c = config, heads = c.num_heads, size = c.d_out / heads, delta = report.module !== "linear", gated = report.module === "gated-delta";
  const linear = (name, out, bias) => torchLinear(name, c.d_in, out, bias), lines = projectionNames().map((name) => linear(`W_${name}`, c.d_out, c.qkv_bias));
  if (delta) lines.push(linear("W_beta", heads, false));
  if (gated) lines.push(linear("W_alpha", heads, false), linear("W_gate", c.d_out, false), `A = torch.empty(${heads}).uniform_(1, 16)`, `step = torch.empty(${heads}).uniform_(math.log(0.001), math.log(0.1)).exp()`);
  if (c.out_proj) lines.push(`out_proj = torch.nn.Linear(${c.d_out}, ${c.d_out})`);
  const map = delta ? "torch.nn.functional.silu(y)" : "torch.nn.functional.elu(y) + 1";
  lines.push("", "def split(y):  # (heads, tokens, head size)", `    return y.view(-1, ${heads}, ${size}).transpose(0, 1)`, "", "def mapped(y):", `    y = ${map}`,
    ...(delta ? ["    return y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt()"] : ["    return y"]), "", "queries, keys, values = mapped(split(W_query(x))), mapped(split(W_key(x))), split(W_value(x))");
  if (delta) lines.push("beta = torch.sigmoid(W_beta(x)).T");
  if (gated) lines.push("kept = torch.exp(-A * torch.nn.functional.softplus(W_alpha(x) + step.expm1().log())).T");
  lines.push(`state, sums, contexts = torch.zeros(${heads}, ${size}, ${size}), torch.zeros(${heads}, ${size}), []`, "for t in range(len(x)):", "    q, k, v = queries[:, t], keys[:, t], values[:, t]");
  if (gated) lines.push("    state = kept[:, t, None, None] * state");
  if (delta) lines.push('    v = beta[:, t, None] * (v - torch.einsum("hkv,hk->hv", state, k))');
  lines.push("    state = state + k[:, :, None] * v[:, None]", ...(delta ? [] : ["    sums = sums + k"]),
    `    contexts.append(torch.einsum("hkv,hk->hv", state, q)${delta ? ` / ${size} ** 0.5` : " / ((sums * q).sum(-1, keepdim=True) + 1e-10)"})`, "z = torch.stack(contexts)  # (tokens, heads, head size)");
  if (delta) lines.push("z = z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt()");
  if (gated) lines.push(`z = z * torch.nn.functional.silu(W_gate(x)).view(-1, ${heads}, ${size})`);
  return [...lines, `z = z.reshape(-1, ${c.d_out})`, ...(c.out_proj ? ["z = out_proj(z)"] : []), "print(z)"];
}

function torchSnippet() {
  const inputs = stepAt("inputs");
  const given = [...inputLines(inputs, "x"), ...(report.kind.source ? stepAt("source") ? inputLines(stepAt("source"), "source") : ["source = x"] : [])];
  const head = [...(given.some((line) => line.includes("numpy")) ? ["import numpy"] : []), "import torch", ""];
  if (report.module === "simple") return [...head, ...given, "weights = torch.softmax(x @ x.T, dim=-1)", "print(weights @ x)"];
  if (report.module === "average") return [...head, ...given, "weights = torch.tril(torch.ones(len(x), len(x)))", "weights = weights / weights.sum(dim=-1, keepdim=True)", "print(weights @ x)"];
  const seeded = weightsAreSeeded() ? [`torch.manual_seed(${report.seed})`] : ["# No seed by itself draws the report's weights: load them into the layers below."];
  if (report.module === "self-v1") {
    return [...head, ...given, ...seeded, ...["query", "key", "value"].map((name) => `W_${name} = torch.rand(${config.d_in}, ${config.d_out})`),
      `weights = torch.softmax((x @ W_query) @ (x @ W_key).T / ${config.d_out} ** 0.5, dim=-1)`, "print(weights @ (x @ W_value))"];
  }
  if (report.kind.recurrent) return ["import math", ...head, ...given, ...seeded, ...torchRecurrent()];
  return [...head, ...(config.rope ? torchRotation(config.rope) : []), ...given, ...seeded, ...(sizes ? torchLatent() : torchProjected())];
}

const ropeText = ({ invFreq, factor, interleaved }) => {
  const fields = [`.inv_freq = {${invFreq.map((x) => `${decimal(x)}f`).join(", ")}}`, factor !== 1 && `.attention_factor = ${exactly(factor)}`,
    interleaved && ".layout = attn::RotaryLayout::interleaved"];
  return `.rope = attn::RotaryFrequencies{${fields.filter(Boolean).join(", ")}}`;
};

function configText() {
  const c = config, several = c.num_heads > 1;
  const fields = [`.d_in = ${c.d_in}`, `.d_out = ${c.d_out}`, c.context_length && `.context_length = ${c.context_length}`, c.dropout && `.dropout = ${c.dropout}`, several && `.num_heads = ${c.num_heads}`,
    c.qkv_bias && ".qkv_bias = true", sizes && !c.qkv_bias && ".out_bias = false", !c.causal && report.kind.mask && ".causal = false", c.scale !== null && report.module !== "head" && `.scale = ${exactly(c.scale)}`,
    c.layer_order === "kqv" && report.module !== "head" && ".layer_order = attn::LayerOrder::kqv", c.rope && ropeText(c.rope), !c.out_proj && report.kind.outProj && ".out_proj = false"];
  return `{${fields.filter(Boolean).join(", ")}}`;
}

function cppSnippet() {
  const name = report.kind.class, inputs = stepAt("inputs"), cross = report.kind.source && stepAt("source");
  const literal = (step, of) => step?.exact && step.rows * step.columns <= 96 && step.rows
    ? [`  const attn::Tensor ${of} = attn::Tensor::of({`, ...Array.from({ length: step.rows }, (_, i) => `      {${Array.from({ length: step.columns }, (_, c) => `${decimal(step.at(0, i, c))}f`).join(", ")}},`), "  });"]
    : [`  const attn::Tensor ${of} = attn::io::load_tensor("${of}.npy");  // (tokens, ${config?.d_in ?? step?.columns ?? "d_in"})`];
  const plain = !report.kind.weights, v1 = report.module === "self-v1";
  const make = plain ? `  attn::${name} module;` : v1 ? `  attn::${name} module(${config.d_in}, ${config.d_out}, rng);` : `  attn::${name} module(${configText()}, ${sizes ? `{.query = ${sizes.query}, .latent = ${sizes.latent}, .plain = ${sizes.plain}, .rotary = ${sizes.rotary}, .value = ${sizes.value}}, ` : ""}rng);`;
  const flavour = report.training && config?.dropout ? `, attn::DropoutFlavour::${report.flavour}` : "";
  return ["#include <attn/attn.hpp>", "", "#include <iostream>", "", "int main() {", ...literal(inputs, "x"), ...(cross ? literal(stepAt("source"), "source") : []),
    ...(plain ? [] : [`  attn::Generator rng(${report.seed ?? 123}${flavour});`]), make,
    ...(!plain && !weightsAreSeeded() ? ['  attn::StateDict weights;', '  for (auto& [name, tensor] : attn::io::load("weights.safetensors").tensors) weights[name] = tensor;', "  module.load_state_dict(weights);"] : []),
    ...(report.training ? ["  module.train();"] : []), "  attn::Trace steps;",
    `  std::cout << attn::to_string(module.${cross ? "forward(x, source, &steps)" : plain || v1 || report.kind.recurrent || sizes || report.module === "heads" ? "forward(x, &steps)" : "AttentionLayer::forward(x, &steps)"}) << "\\n";`,
    '  attn::io::save_text("report.html", attn::report(steps));', "}"];
}
const decimal = (x) => { const text = exactly(x); return /[.e]/.test(text) ? text : `${text}.0`; };

function snippetsPanel(host) {
  if (!report.kind || (!config && report.kind.weights)) return;
  const show = (title, id, lines, file, kind) => {
    const text = lines.join("\n") + "\n";
    return element("div", {}, element("h3", {}, title), element("pre", { id, tabindex: 0 }, element("code", {}, text)),
      element("div", { class: "exports" }, element("button", { class: "export", type: "button", onclick: () => save(file, new Blob([text], { type: kind })) }, `save ${file}`)));
  };
  fill(host, element("p", { class: "lead" }, `The same computation in code: run it, and it prints this report’s result.${torchSnippet().join().includes(".npy") ? " The .npy file is the report’s input." : ""}`),
    element("div", { class: "snippets" }, show("PyTorch", "snippet-torch", torchSnippet(), "attention.py", "text/x-python"), show("C++, this library", "snippet-cpp", cppSnippet(), "attention.cpp", "text/x-c++src")));
}
