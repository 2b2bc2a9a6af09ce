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

// A gated delta rule's layer in released models, by the names of config.json in Hugging Face's.
struct GatedDeltaConfig {
  std::int64_t key_heads = 1;    // linear_num_key_heads: of queries and keys
  std::int64_t value_heads = 1;  // linear_num_value_heads, a multiple: value_heads / key_heads states share a key head
  std::int64_t key_dim = 1;      // linear_key_head_dim
  std::int64_t value_dim = 1;    // linear_value_head_dim
  std::int64_t convolution = 4;  // linear_conv_kernel_dim: how many tokens it sees; 0 = none
  // linear_allow_neg_eigval: beta is twice the sigmoid, so that a token may turn round what its key recalls (Grazzi et
  // al. 2025, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues").
  bool doubled_beta = false;
  double epsilon = 1e-6;  // of the norm behind the rule

  std::int64_t keys() const noexcept { return key_heads * key_dim; }
  std::int64_t values() const noexcept { return value_heads * value_dim; }
  std::int64_t channels() const noexcept { return 2 * keys() + values(); }  // of the convolution
  friend bool operator==(const GatedDeltaConfig&, const GatedDeltaConfig&) = default;
};

// The parameters of such a layer are called as in the book's classes, or as in the files of a family.
struct RecurrentNames {
  std::string_view query = "W_query", key = "W_key", value = "W_value", beta = "W_beta", alpha = "W_alpha",
                   gate = "W_gate", norm = "norm", out = "out_proj";
  std::string_view convolution = "conv";
  bool as_conv1d = false;  // its weight is (channels, 1, tokens), as PyTorch's Conv1d has it, not (channels, tokens)
};

// These modules follow ModuleConfig's d_in, d_out, num_heads, qkv_bias, context_length, out_proj, out_bias,
// layer_order, epsilon (of the norm behind the rule), initialise and precision, and they refuse what else is set; they
// are causal. Each head has a state of head_dim × head_dim numbers, head_dim = d_out / num_heads. Throws Error for a
// config that does not fit (argument), an x or dz of other sizes (shape), and backward() without a forward pass.
class RecurrentLayer : public Module {
 public:
  enum class Kind { linear, delta, gated_delta };

  // With a `convolution` of 2 to 8 tokens, queries, keys and values go through it and silu first (delta rules only).
  RecurrentLayer(Kind kind, const ModuleConfig& config, Generator& rng, std::int64_t convolution = 0,
                 std::string_view prefix = {});
  // A gated delta rule of these heads, whose size does not follow from d_out. Of ModuleConfig it follows d_in, d_out,
  // qkv_bias, out_bias, context_length, initialise and precision.
  RecurrentLayer(const ModuleConfig& config, const GatedDeltaConfig& sizes, Generator& rng,
                 std::string_view prefix = {}, const RecurrentNames& names = {});
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
  // Returns the config of a cache of this layer for so many texts.
  RecurrentCacheConfig cache_config(std::int64_t batch, DType dtype = DType::f32) const;
  const ModuleConfig& config() const noexcept { return config_; }
  const GatedDeltaConfig& sizes() const noexcept { return sizes_; }  // of the other kinds, too

 private:
  RecurrentLayer(Kind kind, const ModuleConfig& checked, const GatedDeltaConfig& sizes, Generator& rng,
                 std::string_view prefix, const RecurrentNames& names);
  struct Saved;  // a forward pass, as backward() needs it

  Tensor run(const Tensor& x, Saved& s, const Tensor& state, const Tensor& window, Trace* steps);
  Tensor projected_out(const Tensor& joined) const;
  Tensor weights(const Saved& s) const;
  void map(Saved& s, const Tensor& window);
  void set_gates(Saved& s);
  Tensor map_backward(Saved& s, const Tensor& dq, const Tensor& dk, const Tensor& dv, Tensor dx);
  Tensor gates_backward(const Saved& s, const Tensor& d_decay, const Tensor& d_beta, Tensor dx);
  // (b, t, heads · d) → (b, heads, t, d), views
  Tensor key_heads(const Tensor& x) const;
  Tensor value_heads(const Tensor& x) const;
  Tensor kernel() const;

  Kind kind_;
  ModuleConfig config_;
  GatedDeltaConfig sizes_;
  Tensor starts_;
  std::unique_ptr<Linear> query_, key_, value_, gate_, beta_, alpha_, out_;
  std::unique_ptr<GatedNorm> gated_norm_;
  std::unique_ptr<Norm> norm_;
  Parameter conv_;             // of the channels of queries, keys and values, one below the other
  Parameter a_log_, dt_bias_;  // (value heads)
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
