// MODULE and its flags: from the command line to a module with weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/module_kinds.hpp"
#include "common/options.hpp"

namespace attn::tool {

struct ModuleFlags {
  std::string module = "simple";
  std::optional<std::int64_t> d_out, heads, context_length, latent, query_latent;
  double dropout = 0;
  bool train = false, no_mask = false, no_out_proj = false, qkv_bias = false, rope = false;
  double rope_theta = 10000;
  std::string scale;  // a number or "none"; empty: the module's own
  std::uint64_t seed = 123;
  std::string rng = "mkl";
  std::string layer_order;  // empty: the module's own
};

// Every module's name.
std::vector<std::string> module_names();
// Adds MODULE and the flags above to a verb. `or_file`: the name may be a file's, which the verb checks.
void add_module_flags(Verb& verb, ModuleFlags& flags, bool or_file = false);
// Throws Error (argument) for a flag on the command line that the chosen module would ignore, and that is not used
// otherwise.
void require_used_flags(const Verb& verb, std::string_view module, std::string_view used_too = {});
// The same for `what`, which uses none of them.
void require_not_given(const Verb& verb, std::initializer_list<std::string_view> flags, std::string_view beside);
void require_no_module_flags(const Verb& verb, std::string_view what);

bool has_weights(std::string_view module);

// Number of heads, by flag or by the module's default.
std::int64_t heads_of(const ModuleFlags& flags);
// Returns what the flags say, for an input of d_in numbers a token.
ModuleConfig config_of(const ModuleFlags& flags, std::int64_t d_in);
// The module as PyTorch would initialise it from `rng`. Throws Error for values that do not fit.
std::unique_ptr<Module> make_module(const ModuleFlags& flags, std::int64_t d_in, Generator& rng);

// "0.5", or "none" for 1. Throws Error (argument).
double parse_scale(const std::string& text);

}  // namespace attn::tool
