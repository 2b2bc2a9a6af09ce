#include "report/html/snippets.hpp"

#include <cmath>

#include "attn/module_kinds.hpp"
#include "core/decimal.hpp"
#include "report/html/json.hpp"

namespace attn::report_page {
namespace {

using Lines = std::vector<std::string>;

std::string written(std::string_view text) { return std::string(text); }
std::string written(std::int64_t number) { return std::to_string(number); }
std::string written(double number) { return shortest_decimal(number); }

template <class... Parts>
std::string line(const Parts&... parts) {
  return (written(parts) + ...);
}

void extend(Lines& to, const Lines& lines) { to.insert(to.end(), lines.begin(), lines.end()); }

// A literal that no language takes for a whole number.
std::string literal(double number) {
  const std::string text = shortest_decimal(number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string rates(const RotaryFrequencies& rope, const char* ending) {
  std::string all;
  for (const float rate : rope.inv_freq) {
    all.append(all.empty() ? "" : ", ").append(literal(static_cast<double>(rate))).append(ending);
  }
  return all;
}

// Both languages need to know this.
struct Told {
  const ReportOptions& options;
  const ModuleKind& kind;
  const ModuleConfig& config;
  bool source;  // keys and values come from a second text that was recorded

  bool is(std::string_view module) const { return kind.name == module; }
  bool seeded() const { return options.random_weights && options.seed; }
  bool causal() const { return config.causal && kind.uses.mask; }
  bool joined() const { return config.out_proj && kind.uses.out_proj; }
  bool drops() const { return options.training && config.dropout > 0; }
};

// ---- PyTorch --------------------------------------------------------------------------------------------

std::string torch_linear(std::string_view name, std::int64_t from, std::int64_t to, bool bias) {
  return line(name, " = torch.nn.Linear(", from, ", ", to, ", bias=", bias ? "True" : "False", ")");
}

// Returns the names in the order in which the module draws its weights.
Lines drawn(const Told& told) {
  if (told.config.layer_order == LayerOrder::kqv) return {"W_key", "W_query", "W_value"};
  return {"W_query", "W_key", "W_value"};
}

// Queries and keys turn by their positions.
Lines torch_rotation(const RotaryFrequencies& rope) {
  const std::int64_t n = std::ssize(rope.inv_freq);
  const bool pairs = rope.layout == RotaryLayout::interleaved;
  const std::string scaled = rope.attention_factor == 1 ? "" : line(" * ", rope.attention_factor);
  const std::string a = pairs ? line("0:", 2 * n, ":2") : line(":", n),
                    b = pairs ? line("1:", 2 * n, ":2") : line(n, ":", 2 * n);
  return {"def turned(x):  # (…, tokens, head size)",
          line("    rates = torch.tensor([", rates(rope, ""), "])"),
          "    angles = torch.arange(x.shape[-2])[:, None] * rates",
          line("    cos, sin = angles.cos()", scaled, ", angles.sin()", scaled),
          line("    a, b = x[..., ", a, "], x[..., ", b, "]"),
          "    first, second = a * cos - b * sin, b * cos + a * sin",
          line("    return torch.cat([", pairs ? "torch.stack([first, second], dim=-1).flatten(-2)" : "first, second",
               ", x[..., ", 2 * n, ":]], dim=-1)"),
          ""};
}

// Queries and keys of this size become weights.
Lines torch_weights(const Told& told, std::int64_t size) {
  const double root = std::sqrt(static_cast<double>(size)), scale = told.config.scale.value_or(1 / root);
  const bool by_root = std::abs(scale * root - 1) < 1e-6;
  Lines lines{
      line("scores = queries @ keys.transpose(-2, -1)", by_root ? line(" / ", size, " ** 0.5") : line(" * ", scale))};
  if (told.causal()) {
    extend(lines, {"future = torch.triu(torch.ones(len(x), len(x), dtype=torch.bool), diagonal=1)",
                   "scores = scores.masked_fill(future, -torch.inf)"});
  }
  lines.emplace_back("weights = torch.softmax(scores, dim=-1)");
  if (told.drops()) lines.push_back(line("weights = torch.nn.functional.dropout(weights, ", told.config.dropout, ")"));
  return lines;
}

// Writes heads with matrices of their own, one after the other.
Lines torch_wrapper(const Told& told, const Lines& body) {
  const ModuleConfig& c = told.config;
  const Lines names = drawn(told);
  std::string head = torch_linear("heads", c.d_in, c.d_out, c.qkv_bias);
  head.insert(head.find("torch"), "[[");
  Lines lines{line(head, " for _ in range(3)] for _ in range(", c.num_heads, ")]"), "contexts = []",
              line("for ", names[0], ", ", names[1], ", ", names[2], " in heads:")};
  for (const std::string& one : body) lines.push_back("    " + one);
  extend(lines, {"    contexts.append(context)", "z = torch.cat(contexts, dim=-1)", "print(z)"});
  return lines;
}

Lines torch_projected(const Told& told) {
  const ModuleConfig& c = told.config;
  const bool wrapper = told.is("heads");
  const std::int64_t heads = c.num_heads, size = wrapper ? c.d_out : c.d_out / heads;
  const std::string source = told.kind.uses.source ? "source" : "x";
  const std::string split = wrapper || heads == 1 ? "" : line(".view(-1, ", heads, ", ", size, ").transpose(0, 1)");
  Lines body{line("queries = W_query(x)", split), line("keys = W_key(", source, ")", split),
             line("values = W_value(", source, ")", split)};
  if (c.rope) body.emplace_back("queries, keys = turned(queries), turned(keys)");
  extend(body, torch_weights(told, size));
  body.emplace_back("context = weights @ values");
  if (wrapper) return torch_wrapper(told, body);
  Lines lines;
  for (const std::string& name : drawn(told)) lines.push_back(torch_linear(name, c.d_in, c.d_out, c.qkv_bias));
  if (told.joined()) lines.push_back(line("out_proj = torch.nn.Linear(", c.d_out, ", ", c.d_out, ")"));
  lines.emplace_back();
  extend(lines, body);
  lines.push_back(line("z = ", heads > 1 ? line("context.transpose(0, 1).reshape(-1, ", c.d_out, ")") : "context"));
  if (told.joined()) lines.emplace_back("z = out_proj(z)");
  lines.emplace_back("print(z)");
  return lines;
}

// The layers by the names of DeepSeek's, drawn in their order.
Lines torch_latent(const Told& told) {
  const ModuleConfig& c = told.config;
  const LatentSizes& s = c.latents;
  const std::int64_t heads = c.num_heads;
  const auto norm = [](std::string_view name, std::int64_t size) {
    return line(name, " = torch.nn.RMSNorm(", size, ", eps=1e-06)");
  };
  Lines lines;
  if (s.query != 0) {
    extend(lines, {torch_linear("q_a_proj", c.d_in, s.query, c.qkv_bias), norm("q_a_layernorm", s.query),
                   torch_linear("q_b_proj", s.query, heads * s.key(), false)});
  } else {
    lines.push_back(torch_linear("q_proj", c.d_in, heads * s.key(), false));
  }
  extend(lines, {torch_linear("kv_a_proj_with_mqa", c.d_in, s.cached(), c.qkv_bias), norm("kv_a_layernorm", s.latent),
                 torch_linear("kv_b_proj", s.latent, heads * (s.plain + s.value), false),
                 torch_linear("o_proj", heads * s.value, c.d_out, c.qkv_bias), "",
                 "def split(y):  # (heads, tokens, numbers of a head)",
                 line("    return y.view(len(x), ", heads, ", -1).transpose(0, 1)"), "",
                 line("queries = split(", s.query != 0 ? "q_b_proj(q_a_layernorm(q_a_proj(x)))" : "q_proj(x)", ")"),
                 line("latents, shared = kv_a_proj_with_mqa(x).split([", s.latent, ", ", s.rotary, "], dim=-1)"),
                 line("keys, values = split(kv_b_proj(kv_a_layernorm(latents))).split([", s.plain, ", ", s.value,
                      "], dim=-1)")});
  if (c.rope) {
    lines.push_back(line("queries, shared = torch.cat([queries[..., :", s.plain, "], turned(queries[..., ", s.plain,
                         ":])], dim=-1), turned(shared)"));
  }
  lines.push_back(line("keys = torch.cat([keys, shared.expand(", heads, ", -1, -1)], dim=-1)"));
  extend(lines, torch_weights(told, s.key()));
  extend(lines,
         {line("z = o_proj((weights @ values).transpose(0, 1).reshape(-1, ", heads * s.value, "))"), "print(z)"});
  return lines;
}

Lines torch_recurrent_layers(const Told& told, bool delta, bool gated) {
  const ModuleConfig& c = told.config;
  Lines lines;
  for (const std::string& name : drawn(told)) lines.push_back(torch_linear(name, c.d_in, c.d_out, c.qkv_bias));
  if (delta) lines.push_back(torch_linear("W_beta", c.d_in, c.num_heads, false));
  if (gated) {
    extend(lines, {torch_linear("W_alpha", c.d_in, c.num_heads, false), torch_linear("W_gate", c.d_in, c.d_out, false),
                   line("A = torch.empty(", c.num_heads, ").uniform_(1, 16)"),
                   line("step = torch.empty(", c.num_heads, ").uniform_(math.log(0.001), math.log(0.1)).exp()")});
  }
  if (c.out_proj) lines.push_back(line("out_proj = torch.nn.Linear(", c.d_out, ", ", c.d_out, ")"));
  return lines;
}

// A state for each head, token by token.
Lines torch_recurrent(const Told& told) {
  const ModuleConfig& c = told.config;
  const std::int64_t heads = c.num_heads, size = c.d_out / heads;
  const bool delta = !told.is("linear"), gated = told.is("gated-delta");
  Lines lines = torch_recurrent_layers(told, delta, gated);
  extend(lines, {"", "def split(y):  # (heads, tokens, head size)",
                 line("    return y.view(-1, ", heads, ", ", size, ").transpose(0, 1)"), "", "def mapped(y):",
                 line("    y = ", delta ? "torch.nn.functional.silu(y)" : "torch.nn.functional.elu(y) + 1"),
                 line("    return y", delta ? " / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt()" : ""), "",
                 "queries, keys, values = mapped(split(W_query(x))), mapped(split(W_key(x))), split(W_value(x))"});
  if (delta) lines.emplace_back("beta = torch.sigmoid(W_beta(x)).T");
  if (gated) {
    lines.emplace_back("kept = torch.exp(-A * torch.nn.functional.softplus(W_alpha(x) + step.expm1().log())).T");
  }
  extend(lines, {line("state, sums, contexts = torch.zeros(", heads, ", ", size, ", ", size, "), torch.zeros(", heads,
                      ", ", size, "), []"),
                 "for t in range(len(x)):", "    q, k, v = queries[:, t], keys[:, t], values[:, t]"});
  if (gated) lines.emplace_back("    state = kept[:, t, None, None] * state");
  if (delta) lines.emplace_back("    v = beta[:, t, None] * (v - torch.einsum(\"hkv,hk->hv\", state, k))");
  lines.emplace_back("    state = state + k[:, :, None] * v[:, None]");
  if (!delta) lines.emplace_back("    sums = sums + k");
  extend(lines, {line("    contexts.append(torch.einsum(\"hkv,hk->hv\", state, q)",
                      delta ? line(" / ", size, " ** 0.5") : " / ((sums * q).sum(-1, keepdim=True) + 1e-10)", ")"),
                 "z = torch.stack(contexts)  # (tokens, heads, head size)"});
  if (delta) lines.emplace_back("z = z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt()");
  if (gated) lines.push_back(line("z = z * torch.nn.functional.silu(W_gate(x)).view(-1, ", heads, ", ", size, ")"));
  lines.push_back(line("z = z.reshape(-1, ", c.d_out, ")"));
  if (c.out_proj) lines.emplace_back("z = out_proj(z)");
  lines.emplace_back("print(z)");
  return lines;
}

Lines torch_of_matrices(const ModuleConfig& c) {
  Lines lines;
  for (const char* name : {"query", "key", "value"}) {
    lines.push_back(line("W_", name, " = torch.rand(", c.d_in, ", ", c.d_out, ")"));
  }
  extend(lines, {line("weights = torch.softmax((x @ W_query) @ (x @ W_key).T / ", c.d_out, " ** 0.5, dim=-1)"),
                 "print(weights @ (x @ W_value))"});
  return lines;
}

Lines torch(const Told& told) {
  Lines lines{"import torch", ""};
  if (told.kind.uses.recurrent) lines.insert(lines.begin(), "import math");
  if (told.config.rope) extend(lines, torch_rotation(*told.config.rope));
  lines.emplace_back("@inputs");
  if (told.kind.uses.source) lines.emplace_back(told.source ? "@source" : "source = x");
  if (told.is("simple")) extend(lines, {"weights = torch.softmax(x @ x.T, dim=-1)", "print(weights @ x)"});
  if (told.is("average")) {
    extend(lines, {"weights = torch.tril(torch.ones(len(x), len(x)))",
                   "weights = weights / weights.sum(dim=-1, keepdim=True)", "print(weights @ x)"});
  }
  if (!told.kind.uses.weights) return lines;
  lines.push_back(told.seeded() ? line("torch.manual_seed(", static_cast<std::int64_t>(*told.options.seed), ")")
                                : "# No seed by itself draws the report's weights: load them into the layers below.");
  extend(lines, told.is("self-v1")         ? torch_of_matrices(told.config)
                : told.kind.uses.recurrent ? torch_recurrent(told)
                : told.kind.uses.latent    ? torch_latent(told)
                                           : torch_projected(told));
  return lines;
}

// ---- this library ----------------------------------------------------------------------------------------

std::string rope_text(const RotaryFrequencies& rope) {
  std::string text = line(".rope = attn::RotaryFrequencies{.inv_freq = {", rates(rope, "f"), "}");
  if (rope.attention_factor != 1) text.append(line(", .attention_factor = ", rope.attention_factor));
  if (rope.layout == RotaryLayout::interleaved) text.append(", .layout = attn::RotaryLayout::interleaved");
  return text + "}";
}

std::string config_text(const Told& told) {
  const ModuleConfig& c = told.config;
  const bool head = told.is("head");
  std::string text = line("{.d_in = ", c.d_in, ", .d_out = ", c.d_out);
  const auto field = [&](bool is_there, const char* name, const auto& value) {
    if (is_there) text.append(line(", .", name, " = ", value));
  };
  field(c.context_length != 0, "context_length", c.context_length);
  field(c.dropout != 0, "dropout", c.dropout);
  field(c.num_heads > 1, "num_heads", c.num_heads);
  field(c.kv_heads != 0 && c.kv_heads != c.num_heads, "kv_heads", c.kv_heads);
  field(c.head_dim != 0 && c.num_heads * c.head_dim != c.d_out, "head_dim", c.head_dim);
  field(c.qkv_bias, "qkv_bias", "true");
  field(!c.out_bias || (told.kind.uses.latent && !c.qkv_bias), "out_bias", "false");
  field(c.sinks, "sinks", "true");
  field(c.output_gate, "output_gate", "true");
  field(!c.causal && told.kind.uses.mask, "causal", "false");
  field(c.window != 0, "window", c.window);
  field(c.softcap != 0, "softcap", c.softcap);
  field(c.scale && !head, "scale", c.scale.value_or(0));
  field(c.layer_order == LayerOrder::kqv && !head, "layer_order", "attn::LayerOrder::kqv");
  if (c.rope) text.append(", ").append(rope_text(*c.rope));
  field(!c.out_proj && told.kind.uses.out_proj, "out_proj", "false");
  return text + "}";
}

std::string constructed(const Told& told) {
  const ModuleConfig& c = told.config;
  const std::string module = line("  attn::", told.kind.class_name, " module");
  if (!told.kind.uses.weights) return module + ";";
  if (told.is("self-v1")) return line(module, "(", c.d_in, ", ", c.d_out, ", rng);");
  std::string latents;
  if (const LatentSizes& s = c.latents; told.kind.uses.latent) {
    latents = line("{.query = ", s.query, ", .latent = ", s.latent, ", .plain = ", s.plain, ", .rotary = ", s.rotary,
                   ", .value = ", s.value, "}, ");
  }
  return line(module, "(", config_text(told), ", ", latents, "rng);");
}

Lines of_this_library(const Told& told) {
  const ModuleUses& uses = told.kind.uses;
  const bool cross = uses.source && told.source;
  Lines lines{"#include <attn/attn.hpp>", "", "#include <iostream>", "", "int main() {", "@inputs"};
  if (cross) lines.emplace_back("@source");
  if (uses.weights) {
    const std::string flavour = told.drops() ? line(", attn::DropoutFlavour::", name(told.options.flavour)) : "";
    lines.push_back(
        line("  attn::Generator rng(", static_cast<std::int64_t>(told.options.seed.value_or(123)), flavour, ");"));
  }
  lines.push_back(constructed(told));
  if (uses.weights && !told.seeded()) {
    extend(lines,
           {"  attn::StateDict weights;",
            "  for (auto& [name, tensor] : attn::io::load(\"weights.safetensors\").tensors) weights[name] = tensor;",
            "  module.load_state_dict(weights);"});
  }
  if (told.options.training) lines.emplace_back("  module.train();");
  // A class whose own forward() takes more than the inputs hides that of its base.
  const bool own = !uses.weights || told.is("self-v1") || told.is("heads") || uses.recurrent || uses.latent;
  const char* call = cross ? "forward(x, source, &steps)"
                     : own ? "forward(x, &steps)"
                           : "AttentionLayer::forward(x, &steps)";
  extend(lines, {"  attn::Trace steps;", line("  std::cout << attn::to_string(module.", call, ") << \"\\n\";"),
                 "  attn::io::save_text(\"report.html\", attn::report(steps));", "}"});
  return lines;
}

// ---- as JSON ---------------------------------------------------------------------------------------------

// How inputs stand in a language: the lines around few numbers and around each row, and the line that reads many.
struct Language {
  const char *title, *id, *file, *type;
  const char* few[4];
  const char *many, *ending;
};
constexpr Language kTorch{"PyTorch",
                          "snippet-torch",
                          "attention.py",
                          "text/x-python",
                          {"NAME = torch.tensor([", "    [", "],", "])"},
                          "NAME = torch.from_numpy(numpy.load(\"NAME.npy\"))  # (tokens, ",
                          ""};
constexpr Language kCpp{"C++, this library",
                        "snippet-cpp",
                        "attention.cpp",
                        "text/x-c++src",
                        {"  const attn::Tensor NAME = attn::Tensor::of({", "      {", "},", "  });"},
                        "  const attn::Tensor NAME = attn::io::load_tensor(\"NAME.npy\");  // (tokens, ",
                        "f"};

void write_snippet(Json& json, const Language& language, const Lines& lines, const std::string& width) {
  json.object().name("title").text(language.title).name("id").text(language.id).name("file").text(language.file);
  json.name("type").text(language.type).name("lines").array();
  for (const std::string& one : lines) json.text(one);
  json.end().name("few").array();
  for (const char* part : language.few) json.text(part);
  json.end().name("many").text(language.many + width + ")").name("ending").text(language.ending).end();
}

// Whether the layers that torch() writes are all of it.
bool torch_has(const ModuleKind& kind, const ModuleConfig& c) {
  return (c.kv_heads == 0 || c.kv_heads == c.num_heads) && (c.head_dim == 0 || c.num_heads * c.head_dim == c.d_out) &&
         c.window == 0 && c.softcap == 0 && !c.sinks && (c.out_bias || kind.uses.latent) && !c.output_gate &&
         c.query_key_norm == QueryKeyNorm::none;
}

}  // namespace

std::string snippets(const Block& block, const ReportOptions& options) {
  Json json;
  json.array();
  const ModuleKind* kind = find_module_kind(options.module);
  if (kind && (options.config || !kind->uses.weights)) {
    const ModuleConfig config = options.config.value_or(ModuleConfig{});
    const Tensor* inputs = block.find("inputs");
    const std::string width = kind->uses.weights ? written(config.d_in) : inputs ? written(inputs->size(-1)) : "d_in";
    const Told told{options, *kind, config, block.find("source") != nullptr};
    if (torch_has(*kind, config)) write_snippet(json, kTorch, torch(told), width);
    write_snippet(json, kCpp, of_this_library(told), width);
  }
  return json.end().str();
}

}  // namespace attn::report_page
