// Attention beyond softmax as modules: a state of fixed size takes the place of all earlier keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/linear_attention.hpp"
#include "attn/modules.hpp"
#include "attn/recurrent_cache.hpp"
#include "attn/recurrent_parts.hpp"

namespace attn {

// Of ModuleConfig these modules follow d_in, d_out, num_heads, qkv_bias, context_length, out_proj, out_bias,
// layer_order, epsilon (of the norm behind the rule), initialise and precision, and they refuse what else is set; they
// are causal. Each head has a state of head_dim × head_dim numbers, head_dim = d_out / num_heads.
class RecurrentLayer : public Module {
 public:
  enum class Kind { linear, delta, gated_delta };

  // With a `convolution` of 2 to 8 tokens, queries, keys and values go through it and silu first (delta rules only).
  RecurrentLayer(Kind kind, const ModuleConfig& config, Generator& rng, std::int64_t convolution = 0,
                 std::string_view prefix = {});
  // x is (b, t, d_in) or (t, d_in). A trace has, beside the steps of attention, "mapped queries" and "mapped keys",
  // which the state meets, "beta" and "decay" of each token, the effective weights A with context = A · values, which
  // may be negative, and what the norm makes of the context, "normed".
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  // A decoder's step: the tokens x (b, t, d_in), or of one item (1, t, d_in), follow those that the cache has seen.
  // Nothing is kept for backward().
  Tensor forward(const Tensor& x, RecurrentCache& cache, std::optional<std::int64_t> item = {});
  Gradient backward(const Tensor& dz) override;
  std::vector<Parameter*> parameters() override;

  // As AttentionLayer has it: x (1, t, d_in) holds several texts.
  void set_texts(Tensor starts) { starts_ = std::move(starts); }
  // What a cache of this layer is made of, for so many texts.
  RecurrentCacheConfig cache_config(std::int64_t batch, DType dtype = DType::f32) const;
  const ModuleConfig& config() const noexcept { return config_; }

 private:
  struct Saved;  // a forward pass, as backward() needs it

  Tensor run(const Tensor& x, Saved& s, const Tensor& state, const Tensor& window, Trace* steps);
  Tensor projected_out(const Tensor& joined) const;
  Tensor weights(const Saved& s) const;
  void map(Saved& s, const Tensor& window);
  void set_gates(Saved& s);
  Tensor map_backward(Saved& s, const Tensor& dq, const Tensor& dk, const Tensor& dv, Tensor dx);
  Tensor gates_backward(const Saved& s, const Tensor& d_decay, const Tensor& d_beta, Tensor dx);
  Tensor heads(const Tensor& x) const;  // (b, t, heads · d) → (b, heads, t, d), a view

  Kind kind_;
  ModuleConfig config_;
  std::int64_t convolution_;
  Tensor starts_;
  std::unique_ptr<Linear> query_, key_, value_, gate_, beta_, alpha_, out_;
  std::unique_ptr<GatedNorm> gated_norm_;
  std::unique_ptr<Norm> norm_;
  Parameter conv_;             // (3 · heads · d, convolution)
  Parameter a_log_, dt_bias_;  // (heads)
  std::shared_ptr<Saved> saved_;
};

// Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs"): queries and keys become elu + 1, which is
// above 0, and each row of the weights φ(q)·φ(k) is divided by its sum, as softmax's is.
class LinearAttention : public RecurrentLayer {
 public:
  LinearAttention(const ModuleConfig& config, Generator& rng) : RecurrentLayer(Kind::linear, config, rng) {}
};

// DeltaNet (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule"): before a token writes, the
// state loses what it recalls for the token's key. Queries and keys are silu's, of length 1; beta is the sigmoid of
// W_beta · x; an RMSNorm of each head follows.
class DeltaNet : public RecurrentLayer {
 public:
  DeltaNet(const ModuleConfig& config, Generator& rng) : RecurrentLayer(Kind::delta, config, rng) {}
};

// Gated DeltaNet (Yang et al. 2025): each token first fades the state by its decay, -exp(A_log) · softplus(W_alpha · x
// + dt_bias), and the norm is multiplied by silu(W_gate · x). A_log and dt_bias begin as Mamba-2's (Dao & Gu 2024).
class GatedDeltaNet : public RecurrentLayer {
 public:
  GatedDeltaNet(const ModuleConfig& config, Generator& rng, std::int64_t convolution = 0, std::string_view prefix = {})
      : RecurrentLayer(Kind::gated_delta, config, rng, convolution, prefix) {}
};

}  // namespace attn
