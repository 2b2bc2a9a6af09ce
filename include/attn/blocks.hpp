// What the models after GPT-2 are built of: RMSNorm, gated feed-forward, grouped-query attention with rotary positions.
// Parameters are named as in Hugging Face's Llama: "q_proj.weight", "gate_proj.weight", ….
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/modules.hpp"

namespace attn {

// How RMSNorm's weight acts. Models differ in this.
enum class RmsWeight {
  scales,    // y = n · w, n rounded to y's dtype before: Llama's
  plus_one,  // y = n · (1 + w), rounded last: Gemma's, whose weights begin at 0
};

// n = x / √(mean(x²) + ε) over the last dimension (Zhang & Sennrich 2019), times its weight.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(std::int64_t width, double epsilon = 1e-6, RmsWeight form = RmsWeight::scales,
                   std::string_view name = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Tensor forward(const Tensor& x, DType dtype);  // the same in float32 or bfloat16
  // The gradient of the last forward pass. Its x must be unchanged.
  Gradient backward(const Tensor& dy) override { return {backward(dy, {}), {}}; }
  // Returns dx. The gradient of a residual path beside this module is added to it, where it is defined.
  Tensor backward(const Tensor& dy, const Tensor& residual);
  std::vector<Parameter*> parameters() override { return {&weight}; }

  Parameter weight;  // (width): ones, or zeros where 1 is added

 private:
  double epsilon_;
  RmsWeight form_;
  Tensor x_, rstd_;
};

// silu(x) is x · σ(x). GELU comes as GPT-2 has it (gelu_tanh), and exactly.
enum class Activation { silu, gelu_tanh, gelu };

// Returns activation(gate) · up, element by element. Both are float32 or both bfloat16, and of one shape.
Tensor gated(const Tensor& gate, const Tensor& up, Activation activation);
struct GatedGradient {
  Tensor gate, up;
};
GatedGradient gated_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, Activation activation);

// Computes down_proj(activation(gate_proj(x)) · up_proj(x)), the gated linear units of Shazeer 2020.
class GatedFeedForward : public Module {
 public:
  GatedFeedForward(std::int64_t width, std::int64_t inner_width, Activation activation = Activation::silu,
                   bool has_bias = false, std::string_view prefix = {});  // zeros
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Gradient backward(const Tensor& dy) override;
  std::vector<Parameter*> parameters() override;
  void set_precision(Precision precision);

  Linear gate_proj, up_proj, down_proj;

 private:
  Activation activation_;
  Tensor x_, gate_, up_;  // of the last forward pass
};

// Where RMSNorm acts on queries and keys before they turn (Henry et al. 2020): nowhere, on each head (Qwen 3, Gemma 3),
// or on all heads together (OLMo 2).
enum class QueryKeyNorm { none, each_head, all_heads };

struct GroupedQueryConfig {
  std::int64_t d_in = 0;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // which query heads share, in order; 0 = heads
  std::int64_t head_dim = 0;  // 0 = d_in / heads
  bool qkv_bias = false, out_bias = false;
  QueryKeyNorm norm = QueryKeyNorm::none;
  double epsilon = 1e-6;  // of that norm, as the next
  RmsWeight form = RmsWeight::scales;
  std::int64_t window = 0;           // a query sees so many keys, its own included; 0 = all before it
  double softcap = 0;                // of the scores; 0 = none
  bool sinks = false;                // one more score a head, learned (attn/attention.hpp)
  std::optional<double> scale = {};  // default 1/√head_dim
  Precision precision = Precision::highest;
};

// Causal attention whose query heads share key heads (Ainslie et al. 2023). Queries and keys turn by a table of the
// tokens' positions; an empty one turns nothing. Weights are zeros, to be loaded or drawn by the caller.
class GroupedQueryAttention : public Module {
 public:
  explicit GroupedQueryAttention(const GroupedQueryConfig& config, std::string_view prefix = {});

  // x is (b, t, d_in) or (t, d_in). The table is (t, …), or (b, t, …) where items have positions of their own.
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override { return forward(x, RotaryTable{}, trace); }
  Tensor forward(const Tensor& x, const RotaryTable& turns, Trace* trace = nullptr);
  // A decoder's step. The tokens x (b, t, d_in) follow those in the cache, which takes their keys and values. With an
  // item, x is (1, t, d_in) and follows that item's tokens. Nothing is kept for backward().
  Tensor forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache, std::optional<std::int64_t> item = {});
  Gradient backward(const Tensor& dz) override;
  // From now on x is this process's part of each sequence, without a trace, and the table that of its tokens. Null:
  // whole sequences. A cache has whole ones.
  void set_sequence(std::shared_ptr<SequencePart> part) { sequence_ = std::move(part); }

  std::vector<Parameter*> parameters() override;
  const GroupedQueryConfig& config() const noexcept { return config_; }  // with no 0 that stands for another number

 private:
  struct Heads {
    Tensor q, k, v;  // (b, heads, t, head_dim)
  };
  Heads project_heads(const Tensor& x, const RotaryTable& turns, Trace* before);
  AttentionOptions options(Align align) const;

  GroupedQueryConfig config_;
  std::shared_ptr<SequencePart> sequence_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<RMSNorm> q_norm_, k_norm_;
  Parameter sinks_;  // (heads)
  struct Saved {
    Tensor x, q, k, v, merged;
    RotaryTable turns;
    AttentionResult attention;
  };
  std::optional<Saved> saved_;
};

}  // namespace attn
