#include "common/module_flags.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "attn/error.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

// Which modules use a flag; flags that are not here are of the verb, not of the module.
struct Use {
  std::string_view flag;
  bool ModuleUses::*by;
};
constexpr std::array kUses{Use{"--d-out", &ModuleUses::weights},
                           Use{"--heads", &ModuleUses::heads},
                           Use{"--context-length", &ModuleUses::linear},
                           Use{"--dropout", &ModuleUses::linear},
                           Use{"--train", &ModuleUses::linear},
                           Use{"--no-mask", &ModuleUses::mask},
                           Use{"--no-out-proj", &ModuleUses::out_proj},
                           Use{"--qkv-bias", &ModuleUses::linear},
                           Use{"--scale", &ModuleUses::linear},
                           Use{"--seed", &ModuleUses::weights},
                           Use{"--rng", &ModuleUses::linear},
                           Use{"--layer-order", &ModuleUses::linear},
                           Use{"--context", &ModuleUses::source},
                           Use{"--weights", &ModuleUses::weights},
                           Use{"--save-weights", &ModuleUses::weights}};

std::string summaries() {
  std::string text;
  for (const ModuleKind& kind : module_kinds()) {
    text.append(text.empty() ? "" : "\n").append(formatted("{:<11}{}", kind.name, kind.summary));
  }
  return text;
}

void require_divisible(const ModuleConfig& config) {
  if (config.d_out % config.num_heads == 0) return;
  throw Error(Error::Kind::argument, "--heads", "a number of heads that divides d_out",
              formatted("{} heads for d_out = {}", config.num_heads, config.d_out), "change --heads or --d-out");
}

}  // namespace

std::vector<std::string> module_names() {
  std::vector<std::string> names;
  for (const ModuleKind& kind : module_kinds()) names.emplace_back(kind.name);
  return names;
}

void add_module_flags(Verb& verb, ModuleFlags& flags, bool or_file) {
  constexpr const char* files =
      "\nFILE       steps (attn run --save-steps), or attention\n"
      "           weights (queries, keys), (heads, queries, keys)\n"
      "           or (layers, heads, queries, keys)";
  Option& module =
      verb.add_option(or_file ? "WHAT" : "MODULE", flags.module, summaries() + (or_file ? files : "")).required();
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
  for (const auto& [flag, by] : kUses) {
    if (!verb.given(flag) || module_kind(module).uses.*by) continue;
    std::vector<std::string> users;
    for (const ModuleKind& kind : module_kinds()) {
      if (kind.uses.*by) users.emplace_back(kind.name);
    }
    throw Error(Error::Kind::argument, "attn " + verb.name(), formatted("flags that {} uses", module), flag,
                "modules with it: " + joined(users, ", "));
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

bool has_weights(std::string_view module) { return module_kind(module).uses.weights; }

std::int64_t heads_of(const ModuleFlags& flags) {
  const ModuleUses& uses = module_kind(flags.module).uses;
  return flags.heads.value_or(uses.heads && !uses.source ? 2 : 1);
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
  const ModuleKind& kind = module_kind(flags.module);
  const ModuleConfig config = config_of(flags, d_in);
  if (kind.uses.out_proj) require_divisible(config);
  return kind.make(config, rng);
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
