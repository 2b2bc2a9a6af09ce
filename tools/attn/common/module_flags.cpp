#include "common/module_flags.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

// Which modules use a flag; flags that are not here are of the verb, not of the module.
struct Use {
  std::string_view flag;
  bool ModuleUses::*by;
  bool ModuleUses::*but = nullptr;  // though they have `by`

  bool is_of(const ModuleUses& uses) const { return uses.*by && !(but && uses.*but); }
};
constexpr std::array kUses{Use{"--d-out", &ModuleUses::weights},
                           Use{"--heads", &ModuleUses::heads},
                           Use{"--latent", &ModuleUses::latent},
                           Use{"--query-latent", &ModuleUses::latent},
                           Use{"--context-length", &ModuleUses::linear},
                           Use{"--dropout", &ModuleUses::linear},
                           Use{"--train", &ModuleUses::linear},
                           Use{"--no-mask", &ModuleUses::mask},
                           Use{"--no-out-proj", &ModuleUses::out_proj},
                           Use{"--qkv-bias", &ModuleUses::linear},
                           Use{"--scale", &ModuleUses::linear},
                           Use{"--rope", &ModuleUses::rope},
                           Use{"--rope-theta", &ModuleUses::rope},
                           Use{"--seed", &ModuleUses::weights},
                           Use{"--rng", &ModuleUses::linear},
                           Use{"--layer-order", &ModuleUses::linear, &ModuleUses::latent},
                           Use{"--context", &ModuleUses::source},
                           Use{"--context-tensor", &ModuleUses::source},
                           Use{"--context-text", &ModuleUses::source},
                           Use{"--weights", &ModuleUses::weights},
                           Use{"--save-weights", &ModuleUses::weights}};

std::string summaries() {
  std::string text;
  for (const ModuleKind& kind : module_kinds()) {
    text.append(text.empty() ? "" : "\n").append(formatted("{:<12}{}", kind.name, kind.summary));
  }
  return text;
}

void require_divisible(const ModuleConfig& config) {
  if (config.d_out % config.num_heads == 0) return;
  refuse("--heads", "a number of heads that divides d_out",
         formatted("{} heads for d_out = {}", config.num_heads, config.d_out), "change --heads or --d-out");
}

RotaryFrequencies rope_of(const ModuleFlags& flags, std::int64_t head_dim) {
  if (head_dim % 2 != 0) {
    refuse("--rope", "heads of an even size, which d_out / heads is", std::to_string(head_dim),
           "change --d-out or --heads");
  }
  if (!(flags.rope_theta > 0 && std::isfinite(flags.rope_theta))) {
    refuse("--rope-theta", "a number above 0", formatted("{}", flags.rope_theta));
  }
  try {
    return rotary_frequencies({.head_dim = head_dim, .theta = flags.rope_theta});
  } catch (const Error&) {  // the one number that is chosen here
    refuse("--rope-theta", "a number whose powers are finite in float32", shortest(flags.rope_theta));
  }
}

void add_size_flags(Verb& verb, ModuleFlags& flags) {
  verb.add_option("--d-out N", flags.d_out, "The size of an output vector; for heads, that of each head.")
      .default_is("the size of an input vector")
      .positive();
  verb.add_option("--heads N", flags.heads, "The number of heads.").default_is("2, and 1 for cross").positive();
  verb.add_option("--latent N", flags.latent, "The size of the latent, of which keys and values are made.")
      .default_is("half of --d-out, and at least 2")
      .positive();
  verb.add_option("--query-latent N", flags.query_latent, "The size of a second latent, of which queries are made.")
      .default_is("none: they are made of the input")
      .positive();
  verb.add_option("--context-length N", flags.context_length, "The largest number of tokens that the module takes.")
      .default_is("as many as the input has")
      .positive();
}

}  // namespace

std::vector<std::string> module_names() {
  std::vector<std::string> names;
  for (const ModuleKind& kind : module_kinds()) names.emplace_back(kind.name);
  return names;
}

void add_module_flags(Verb& verb, ModuleFlags& flags, bool or_file) {
  constexpr const char* files =
      "\nFILE       steps that attn run --save-steps wrote, or\n"
      "           attention weights of shape (queries, keys),\n"
      "           (heads, queries, keys) or\n"
      "           (layers, heads, queries, keys)";
  Option& module =
      verb.add_option(or_file ? "WHAT FILE" : "MODULE", flags.module,
                      (or_file ? "A module, or a file:\n" : "The module:\n") + summaries() + (or_file ? files : ""));
  or_file ? module.offers(module_names()) : module.one_of(module_names());
  add_size_flags(verb, flags);
  verb.add_option("--dropout P", flags.dropout,
                  "The probability, from 0 to 1, that a weight is dropped. It acts with --train only.")
      .between(0, 1);
  verb.add_flag("--train", flags.train, "Use train mode, in which dropout acts.");
  verb.add_flag("--no-mask", flags.no_mask, "Let queries see later tokens, as in an encoder.");
  verb.add_flag("--no-out-proj", flags.no_out_proj, "Leave the output projection out.");
  verb.add_flag("--qkv-bias", flags.qkv_bias, "Add a bias to the query, key and value projections.");
  verb.add_option("--scale S", flags.scale, "Multiply the scores by S; none means 1.")
      .default_is("1/√(head size), and none for head");
  verb.add_flag("--rope", flags.rope,
                "Turn queries and keys by their positions (rotary positions). In latent a part of its own turns, half "
                "as long as a head.");
  verb.add_option(
      "--rope-theta BASE", flags.rope_theta,
      "With --rope: pair i turns by this number to the power of -2i / (size of what turns), in radians a token.");
  verb.add_option(
      "--seed N", flags.seed,
      "The seed of weights, dropout and drawn inputs, as torch.manual_seed takes it: its low 32 bits count.");
  verb.add_option(
          "--rng NAME", flags.rng,
          "Draw dropout as PyTorch does on one kind of machine: mkl for Linux wheels on Intel processors, native "
          "for macOS and Arm.")
      .one_of({"mkl", "native"})
      .needs(*verb.find("--dropout"));
  verb.add_option("--layer-order ORDER", flags.layer_order,
                  "The order in which the initial weights are drawn: qkv or kqv.")
      .default_is("qkv, and kqv for head")
      .one_of({"qkv", "kqv"});
}

void require_used_flags(const Verb& verb, std::string_view module, std::string_view used_too) {
  if (verb.given("--rope-theta") && !verb.given("--rope")) {
    refuse("attn " + verb.name(), "--rope with --rope-theta", "--rope-theta alone");
  }
  for (const Use& use : kUses) {
    if (!verb.given(use.flag) || use.is_of(module_kind(module).uses) || use.flag == used_too) continue;
    std::vector<std::string> users;
    for (const ModuleKind& kind : module_kinds()) {
      if (use.is_of(kind.uses)) users.emplace_back(kind.name);
    }
    refuse("attn " + verb.name(), formatted("flags that {} uses", module), use.flag,
           "modules with it: " + joined(users, ", "));
  }
}

void require_not_given(const Verb& verb, std::initializer_list<std::string_view> flags, std::string_view beside) {
  for (const std::string_view flag : flags) {
    if (!verb.given(flag)) continue;
    refuse("attn " + verb.name(), formatted("no module's flag with {}", beside), flag);
  }
}

void require_no_module_flags(const Verb& verb, std::string_view what) {
  require_not_given(verb, {"--input"}, what);
  for (const Use& use : kUses) require_not_given(verb, {use.flag}, what);
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
  const ModuleUses& uses = module_kind(flags.module).uses;
  if (uses.out_proj || uses.latent) require_divisible(config);
  const std::int64_t head = flags.module == "heads" ? config.d_out : config.d_out / config.num_heads;
  if (flags.rope) config.rope = rope_of(flags, uses.latent ? 2 * ((head + 3) / 4) : head);
  if (uses.latent) {
    config.latents = {.query = flags.query_latent.value_or(0), .latent = flags.latent.value_or(0)};
    config.latents = latent_sizes(config);
  }
  return config;
}

std::unique_ptr<Module> make_module(const ModuleFlags& flags, std::int64_t d_in, Generator& rng) {
  const ModuleKind& kind = module_kind(flags.module);
  return kind.make(config_of(flags, d_in), rng);
}

double parse_scale(const std::string& text) {
  if (text == "none") return 1;
  if (const auto value = number_in<double>(text); value && std::isfinite(*value)) return *value;
  refuse("--scale", "a finite number or none", text);
}

}  // namespace attn::tool
