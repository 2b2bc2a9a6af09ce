// GPT-2 (Radford et al. 2019) on the attention modules: what trains, and what generates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/causal_lm.hpp"

namespace attn {

// GELU (Hendrycks & Gimpel 2016), x · Φ(x): exactly, or as GPT-2 has it,
// 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))).
enum class Gelu { tanh, exact };

struct GPTConfig {
  std::int64_t vocab_size = 256;  // 256: bytes
  std::int64_t context_length = 256;
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;
  double dropout = 0;     // in train mode: on the embeddings, the attention weights and both branches of a block
  double epsilon = 1e-5;  // of LayerNorm
  Gelu gelu = Gelu::tanh;
  bool tied = true;                          // the head shares wte's weight, as GPT-2's does; false: lm_head of its own
  Precision precision = Precision::highest;  // of the products, forward and backward; weights stay float32
  bool initialise = true;                    // false: draws nothing, every weight is 0 until load_state_dict()

  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

// "117M", "345M", "762M" or "1.5B", with GPT-2's vocabulary of 50257 and 1024 tokens of context; dropout 0.1.
// Throws Error (argument) for another name.
GPTConfig gpt2(std::string_view size);

// y = (x - mean) / √(variance + ε) · weight + bias over the last dimension (Ba et al. 2016), the variance biased.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5, std::string_view name = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Tensor forward(const Tensor& x, DType dtype);  // the same in float32 or bfloat16
  // The gradient of the last forward pass. Its x must be unchanged.
  Gradient backward(const Tensor& dy) override { return {backward(dy, {}), {}}; }
  // Returns dx. The gradient of a residual path beside this module is added to it, where it is defined.
  Tensor backward(const Tensor& dy, const Tensor& residual);
  Tensor output() const;  // of the last forward pass: kept in bfloat16, computed again in float32
  std::vector<Parameter*> parameters() override { return {&weight, &bias}; }

  Parameter weight, bias;  // (width): ones and zeros

 private:
  double epsilon_;
  Tensor normalised(DType dtype) const;

  Tensor x_, mean_, rstd_, y_;  // y_ where bfloat16
};

// Returns x · keep / (1 - p) in train mode, and x itself otherwise.
class Dropout : public Module {
 public:
  Dropout(double p, const Generator& rng);
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Gradient backward(const Tensor& dy) override;
  // x is (…, t, width) then, of whose whole sequences these rows have the same elements dropped.
  void set_sequence(std::shared_ptr<SequencePart> part) { sequence_ = std::move(part); }

 private:
  double p_;
  Generator rng_;
  std::shared_ptr<SequencePart> sequence_;
  Tensor keep_;
};

// Computes c_proj(gelu(c_fc(x))), which is four times as wide inside.
class FeedForward : public Module {
 public:
  explicit FeedForward(std::int64_t width, Gelu form = Gelu::tanh, std::string_view prefix = {});  // zeros
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  using Module::backward;
  Tensor backward(const Tensor& dy, const Tensor& x);  // for the x of the last forward pass
  std::vector<Parameter*> parameters() override;

  Linear c_fc, c_proj;

 private:
  Gelu gelu_;
  Tensor hidden_, active_;  // c_fc(x); gelu(hidden) where bfloat16, else computed again
};

// x + dropout(attn(ln_1(x))), then x + dropout(mlp(ln_2(x))). The parts are open, to be run one by one (with a cache
// of keys and values, say).
class Block : public Module {
 public:
  // Matrices are zeros, to be drawn by GPT or loaded; rng is for dropout.
  Block(const GPTConfig& config, Generator& rng, std::string_view prefix = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Gradient backward(const Tensor& dy) override;
  std::vector<Parameter*> parameters() override;
  void train(bool on = true) override;
  void set_sequence(const std::shared_ptr<SequencePart>& part);  // of x's tokens; null: all

  LayerNorm ln_1;
  MultiHeadAttention attention;
  Dropout attention_dropout;
  LayerNorm ln_2;
  FeedForward feed_forward;
  Dropout feed_forward_dropout;
};

// The language model. Parameters are named as in Hugging Face's GPT-2, but for what the attention modules keep apart:
// h.0.attn.W_query, W_key, W_value and out_proj for c_attn and c_proj; every Linear's weight is (d_out, d_in), the
// transpose of Hugging Face's Conv1D.
//
// Initial values are GPT-2's: each matrix torch.nn.init.normal_(weight, 0, 0.02), in the order of parameters(), the
// last one of each branch 0.02 / √(2 · layers); biases 0; LayerNorm's weight 1.
//
// A trace records the blocks' steps as "h.0.attn.weights", ….
class GPT : public CausalLM {
 public:
  GPT(const GPTConfig& config, Generator& rng);
  void set_sequence(const std::shared_ptr<SequencePart>& part) override;
  WeightParts weight_parts() override;
  void train(bool on = true) override;
  const GPTConfig& config() const noexcept { return config_; }
  const Parameter& head() const noexcept { return config_.tied ? wte : lm_head; }  // (vocab_size, width)

  Parameter wte, wpe;  // (vocab_size, width), (context_length, width)
  Dropout dropout;     // of the embeddings
  std::vector<std::unique_ptr<Block>> h;
  LayerNorm ln_f;
  Parameter lm_head;  // (vocab_size, width); value undefined when tied

 private:
  Tensor hidden(const Tensor& ids, Trace* trace) override;
  void hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) override;
  std::size_t block_count() const override { return h.size(); }
  bool tied() const override { return config_.tied; }
  Parameter& head_weight() override { return config_.tied ? wte : lm_head; }
  Head output_head() override;
  void initialise(Generator& rng);
  Tensor embedded();                                                               // (b, t, width), of ids_
  Tensor places() const { return sequence_ ? sequence_->positions() : Tensor{}; }  // of the tokens in wpe

  GPTConfig config_;
};

// The parts as functions. GELU takes float32 or bfloat16, and its gradient has x's dtype.
Tensor gelu(const Tensor& x, Gelu form = Gelu::tanh);
Tensor gelu_backward(const Tensor& dy, const Tensor& x, Gelu form = Gelu::tanh);

struct CrossEntropy {
  double loss = 0;         // mean over the targets that are not ignored, in nats; 0 when all are (PyTorch: NaN)
  std::int64_t count = 0;  // how many those are
};
// Takes float32 logits (…, vocab) and int64 targets (…). A target of -100 is ignored.
CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets);
// The same. It leaves factor · d(sum of losses)/d(logits) in place of the logits.
CrossEntropy cross_entropy_in_place(const Tensor& logits, const Tensor& targets, double factor);

}  // namespace attn
