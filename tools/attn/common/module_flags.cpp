#include "common/module_flags.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "attn/error.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

constexpr std::string_view kWeighted = "self-v1 self-v2 head causal heads multihead cross";
constexpr std::string_view kProjected = "self-v2 head causal heads multihead cross";

// Which modules use a flag; flags that are not here are of the verb, not of the module.
struct Use {
  std::string_view flag, modules;
};
constexpr std::array<Use, 15> kUses{{{"--d-out", kWeighted},
                                     {"--heads", "heads multihead cross"},
                                     {"--context-length", kProjected},
                                     {"--dropout", kProjected},
                                     {"--train", kProjected},
                                     {"--no-mask", "head causal heads multihead"},
                                     {"--no-out-proj", "multihead cross"},
                                     {"--qkv-bias", kProjected},
                                     {"--scale", kProjected},
                                     {"--seed", kWeighted},
                                     {"--rng", kProjected},
                                     {"--layer-order", kProjected},
                                     {"--context", "cross"},
                                     {"--weights", kWeighted},
                                     {"--save-weights", kWeighted}}};

bool contains(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

void require_divisible(const ModuleConfig& config) {
  if (config.d_out % config.num_heads == 0) return;
  throw Error(Error::Kind::argument, "--heads", "a number of heads that divides d_out",
              formatted("{} heads for d_out = {}", config.num_heads, config.d_out), "change --heads or --d-out");
}

}  // namespace

std::vector<std::string> module_names() {
  return {"simple", "average", "self-v1", "self-v2", "head", "causal", "heads", "multihead", "cross"};
}

void add_module_flags(Verb& verb, ModuleFlags& flags, bool or_file) {
  constexpr const char* modules =
      "simple     softmax(x · xᵀ) · x, no weights\n"
      "average    row i is the mean of rows 1 to i\n"
      "self-v1    weights from rand, used as x · W\n"
      "self-v2    weights from Linear, no mask\n"
      "head       one causal head, not scaled\n"
      "causal     one causal head with dropout\n"
      "heads      causal heads one after the other, joined\n"
      "multihead  one projection split into heads, out_proj\n"
      "cross      queries from x, keys, values from --context";
  constexpr const char* files =
      "\nFILE       steps (attn run --save-steps), or attention\n"
      "           weights (queries, keys), (heads, queries, keys)\n"
      "           or (layers, heads, queries, keys)";
  Option& module =
      verb.add_option(or_file ? "WHAT" : "MODULE", flags.module, modules + std::string(or_file ? files : ""))
          .required();
  if (!or_file) module.one_of(module_names());
  verb.add_option("--d-out", flags.d_out, "Output size; of each head for heads. Default: d_in")
      .value_name("N")
      .positive();
  verb.add_option("--heads", flags.heads, "Heads. Default: 2; for cross 1").value_name("N").positive();
  verb.add_option("--context-length", flags.context_length, "Most tokens allowed. Default: as many as there are")
      .value_name("N")
      .positive();
  verb.add_option("--dropout", flags.dropout,
                  "Chance in [0, 1] that a weight is dropped; acts\nwith --train only. Default: 0")
      .value_name("P");
  verb.add_flag("--train", flags.train, "Train mode: dropout acts. Default: eval mode");
  verb.add_flag("--no-mask", flags.no_mask, "Future tokens may be seen (an encoder's block)");
  verb.add_flag("--no-out-proj", flags.no_out_proj, "No output projection (multihead, cross)");
  verb.add_flag("--qkv-bias", flags.qkv_bias, "Query, key and value projections have a bias");
  verb.add_option("--scale", flags.scale, "Factor of the scores; none is 1.\nDefault: 1/√(head size); for head none")
      .value_name("S");
  verb.add_option("--seed", flags.seed,
                  "Of weights and dropout, as torch.manual_seed takes\nit: the low 32 bits count. Default: 123")
      .value_name("N");
  verb.add_option("--rng", flags.rng,
                  "Dropout as PyTorch draws it: mkl (Linux wheels on Intel)\nor native (macOS, Arm). Default: mkl")
      .value_name("NAME")
      .one_of({"mkl", "native"});
  verb.add_option("--layer-order", flags.layer_order,
                  "Which initial weights are drawn first: qkv or kqv.\nDefault: qkv; for head kqv")
      .value_name("ORDER")
      .one_of({"qkv", "kqv"});
}

void require_used_flags(const Verb& verb, std::string_view module) {
  for (const auto& [flag, modules] : kUses) {
    if (!verb.given(flag) || contains(modules, module)) continue;
    std::string users(modules);
    for (std::size_t at = 0; (at = users.find(' ', at)) != std::string::npos; at += 2) users.replace(at, 1, ", ");
    throw Error(Error::Kind::argument, "attn " + verb.name(), formatted("flags that {} uses", module), flag,
                "modules with it: " + users);
  }
}

void require_no_module_flags(const Verb& verb, std::string_view what) {
  const auto refuse = [&](std::string_view flag) {
    if (!verb.given(flag)) return;
    throw Error(Error::Kind::argument, "attn " + verb.name(), formatted("no module's flag with {}", what), flag);
  };
  refuse("--input");
  for (const Use& use : kUses) refuse(use.flag);
}

bool has_weights(std::string_view module) { return contains(kWeighted, module); }
bool is_projected(std::string_view module) { return contains(kProjected, module); }

std::int64_t heads_of(const ModuleFlags& flags) {
  const bool several = flags.module == "heads" || flags.module == "multihead";
  return flags.heads.value_or(several ? 2 : 1);
}

ModuleConfig config_of(const ModuleFlags& flags, std::int64_t d_in) {
  ModuleConfig config;
  config.d_in = d_in;
  config.d_out = flags.d_out.value_or(d_in);
  config.context_length = flags.context_length.value_or(0);
  config.dropout = flags.dropout;
  config.num_heads = heads_of(flags);
  config.qkv_bias = flags.qkv_bias;
  config.causal = !flags.no_mask;
  if (!flags.scale.empty()) config.scale = parse_scale(flags.scale);
  if (!flags.layer_order.empty()) config.layer_order = flags.layer_order == "kqv" ? LayerOrder::kqv : LayerOrder::qkv;
  config.out_proj = !flags.no_out_proj;
  return config;
}

std::unique_ptr<Module> make_module(const ModuleFlags& flags, std::int64_t d_in, Generator& rng) {
  const std::string& module = flags.module;
  const ModuleConfig config = config_of(flags, d_in);
  if (module == "simple") return std::make_unique<SimplifiedSelfAttention>();
  if (module == "average") return std::make_unique<AveragePast>();
  if (module == "self-v1") return std::make_unique<SelfAttentionV1>(d_in, config.d_out, rng);
  if (module == "self-v2") return std::make_unique<SelfAttentionV2>(config, rng);
  if (module == "causal") return std::make_unique<CausalAttention>(config, rng);
  if (module == "heads") return std::make_unique<MultiHeadAttentionWrapper>(config, rng);
  if (module == "head") return std::make_unique<SelfAttentionHead>(config, rng);
  require_divisible(config);
  if (module == "cross") return std::make_unique<CrossAttention>(config, rng);
  return std::make_unique<MultiHeadAttention>(config, rng);
}

double parse_scale(const std::string& text) {
  if (text == "none") return 1;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value)) return value;
  throw Error(Error::Kind::argument, "--scale", "a finite number or none", text);
}

}  // namespace attn::tool
