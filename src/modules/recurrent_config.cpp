#include "modules/recurrent_config.hpp"

#include <string>

#include "attn/error.hpp"
#include "core/known.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

void require(bool fits, const char* expected, const std::string& found) {
  if (!fits) throw Error(Error::Kind::argument, kRecurrentOp, expected, found);
}

}  // namespace

ModuleConfig checked_recurrent(RecurrentLayer::Kind kind, ModuleConfig c, std::int64_t convolution) {
  require_known(kRecurrentOp, "kind", kind, RecurrentLayer::Kind::gated_delta);
  require_known(kRecurrentOp, "layer_order", c.layer_order.value_or(LayerOrder::qkv), LayerOrder::kqv);
  require_known(kRecurrentOp, "precision", c.precision, Precision::medium);
  require_positive(kRecurrentOp, "d_in", c.d_in);
  require_positive(kRecurrentOp, "d_out", c.d_out);
  require_positive(kRecurrentOp, "num_heads", c.num_heads);
  require(c.d_out % c.num_heads == 0, "d_out divisible by num_heads",
          "d_out = " + std::to_string(c.d_out) + ", num_heads = " + std::to_string(c.num_heads));
  require(c.head_dim == 0 || c.head_dim == c.d_out / c.num_heads, "head_dim = d_out / num_heads, or 0",
          std::to_string(c.head_dim));
  require(c.context_length >= 0, "context_length >= 0 (0 = any)", std::to_string(c.context_length));
  require(c.causal, "a causal module: a state holds what came before", "causal = false");
  require(c.kv_heads == 0 || c.kv_heads == c.num_heads, "as many key heads as heads", std::to_string(c.kv_heads));
  const bool others = c.dropout != 0 || c.window != 0 || c.softcap != 0 || c.sinks || c.output_gate || c.rope ||
                      c.scale || c.query_key_norm != QueryKeyNorm::none || c.latents != LatentSizes{} ||
                      c.norm != NormForm::rms;
  require(!others,
          "no dropout, window, softcap, sinks, output_gate, rope, scale, query_key_norm, latents or norm of a state",
          "one of them");
  const bool fits = convolution == 0 || (convolution >= 2 && convolution <= 8 && kind != RecurrentLayer::Kind::linear);
  require(fits, "a convolution of 2 to 8 tokens before a delta rule, or 0", std::to_string(convolution));
  c.kv_heads = c.num_heads, c.head_dim = c.d_out / c.num_heads;
  return c;
}

GatedDeltaConfig sizes_of(const ModuleConfig& c, std::int64_t convolution) {
  return {.key_heads = c.num_heads,
          .value_heads = c.num_heads,
          .key_dim = c.head_dim,
          .value_dim = c.head_dim,
          .convolution = convolution,
          .epsilon = c.epsilon};
}

ModuleConfig checked_recurrent(const ModuleConfig& config, const GatedDeltaConfig& s) {
  for (const auto& [name, size] : {std::pair{"key_heads", s.key_heads},
                                   {"value_heads", s.value_heads},
                                   {"key_dim", s.key_dim},
                                   {"value_dim", s.value_dim}})
    require_positive(kRecurrentOp, name, size);
  require(s.value_heads % s.key_heads == 0, "value_heads that are a multiple of key_heads",
          std::to_string(s.value_heads) + " and " + std::to_string(s.key_heads));
  ModuleConfig one = config;
  one.num_heads = 1;
  one = checked_recurrent(RecurrentLayer::Kind::gated_delta, one, s.convolution);
  one.num_heads = s.value_heads, one.kv_heads = s.key_heads, one.head_dim = s.value_dim;
  one.epsilon = s.epsilon, one.out_proj = true;
  return one;
}

}  // namespace attn
