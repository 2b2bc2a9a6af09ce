// The attention mechanisms of the book's chapter 3 and of the lecture after it, as modules.
// Names, weight shapes and initial values are PyTorch's, so state_dicts go both ways. Notebooks have the numbers that
// `attn check` gives them: 000, 001, 002 and 004 follow the book's chapter 3, and 003 follows the lecture.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention.hpp"
#include "attn/kv_cache.hpp"
#include "attn/random.hpp"
#include "attn/rotary.hpp"
#include "attn/sequence.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

struct Parameter {
  std::string name;  // as in PyTorch's state_dict: "W_query.weight", "heads.0.W_key.bias"
  Tensor value;
  Tensor grad;  // undefined until backward() fills it; backward() adds to what is there
  // Of a matrix in int8 (store_matrices()): float32 (rows), the factors of the value's rows. Else undefined.
  Tensor scales = {};
};

using StateDict = std::map<std::string, Tensor>;

// Is told of parameters whose gradients a backward pass has finished, while it goes on with others.
using GradientsReady = std::function<void(std::span<Parameter* const>)>;

class Module {
 public:
  virtual ~Module() = default;

  // x (t, d_in) or (b, t, d_in), float32 → (…, t, d_out). With a trace every step is recorded,
  // without the batch dimension when x has none. Throws Error for a shape or dtype that does not fit.
  virtual Tensor forward(const Tensor& x, Trace* trace = nullptr) = 0;

  struct Gradient {
    Tensor x, source;  // source: of a second input, where the last forward pass had one
  };
  // The gradient of the last forward pass, for the gradient of its output. It adds to every parameter's grad. Throws
  // Error (argument) before a forward pass, and for a module that has no backward pass.
  virtual Gradient backward(const Tensor& dz);

  virtual std::vector<Parameter*> parameters() { return {}; }
  StateDict state_dict();
  // Every parameter must be there, with its shape, and nothing else. Otherwise it throws Error and changes nothing.
  void load_state_dict(const StateDict& state);
  void zero_grad();

  // Dropout acts in train mode only. Modules start in eval mode (PyTorch's start in train mode).
  // In train mode the memory of large tensors is kept for the next ones.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool training() const noexcept { return training_; }

 protected:
  bool training_ = false;

 private:
  std::shared_ptr<void> keeps_memory_;
};

// y = x · weightᵀ + bias. Initial values as nn.Linear's: uniform in ±1/√d_in, weight first, then bias.
class Linear : public Module {
 public:
  Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, Generator& rng, std::string_view name = {});
  // Its weights are zeros, for the caller to load or draw.
  Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, std::string_view name = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  using Module::backward;
  // Returns dx, for dy and the x of the forward pass.
  Tensor backward(const Tensor& dy, const Tensor& x);
  std::vector<Parameter*> parameters() override;

  Parameter weight;  // (d_out, d_in)
  Parameter bias;    // (d_out); value undefined without bias
  // How the three products are computed: y = x · weightᵀ, dx = dy · weight, d_weight = dyᵀ · x. Sums stay float32.
  Precision precision = Precision::highest;
};

// Simplified self-attention, no weights: softmax(x · xᵀ) · x. Notebooks 000 and 001.
class SimplifiedSelfAttention : public Module {
 public:
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
};

// Row i becomes the mean of rows 0..i. Notebook 003.
class AveragePast : public Module {
 public:
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
};

// Self-attention whose weights are torch.rand(d_in, d_out), used as x · W. Notebooks 000 and 004.
class SelfAttentionV1 : public Module {
 public:
  SelfAttentionV1(std::int64_t d_in, std::int64_t d_out, Generator& rng);
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Gradient backward(const Tensor& dz) override;
  std::vector<Parameter*> parameters() override;

  Parameter W_query, W_key, W_value;  // (d_in, d_out)

 private:
  Tensor x_, q_, k_, v_;  // of the last forward pass; x (b, t, d_in), the others (b, 1, t, d_out)
};

// The order in which a module draws its projections' initial weights. The book and its multi-head notebook draw
// query, key, value; the first notebook's classes and the lecture draw key, query, value.
enum class LayerOrder { qkv, kqv };

struct ModuleConfig {
  std::int64_t d_in = 0;
  std::int64_t d_out = 0;
  std::int64_t context_length = 0;  // longest input; 0 = any
  double dropout = 0;               // on the attention weights, in train mode
  std::int64_t num_heads = 1;
  bool qkv_bias = false;
  bool causal = true;                          // false: the encoder's block
  std::optional<double> scale = {};            // default 1/√head_dim
  std::optional<LayerOrder> layer_order = {};  // default qkv; SelfAttentionHead's is kqv
  // Queries and keys turn by their positions before they meet, and a cache's tokens count. Keys from another source do
  // not turn.
  std::optional<RotaryFrequencies> rope = {};
  bool out_proj = true;                      // of MultiHeadAttention
  bool initialise = true;                    // false: draws nothing, every weight is 0 until it is loaded
  Precision precision = Precision::highest;  // of projections and attention, forward and backward
};

// Linear projections, then attention over num_heads consecutive slices of d_out (weight splits), then an output
// projection. Each module below is one choice of these.
class ProjectedAttention : public Module {
 public:
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override { return forward(x, x, trace); }
  // Queries come from x (…, tq, d_in), keys and values from source (…, tk, d_in).
  Tensor forward(const Tensor& x, const Tensor& source, Trace* trace);
  // A decoder's step. The tokens x (…, t, d_in) follow those in the cache, which takes their keys and values. The cache
  // must have this module's heads and x's batch. No dropout acts, and nothing is kept for backward().
  Tensor forward(const Tensor& x, DecoderCache& cache);

  // When x was its own source, the whole gradient is in x and source is undefined.
  Gradient backward(const Tensor& dz) override;

  // From now on x is this process's part of each sequence, its own source and without a trace. Null: whole sequences.
  // A cache has whole ones.
  void set_sequence(std::shared_ptr<SequencePart> part) { sequence_ = std::move(part); }

  std::vector<Parameter*> parameters() override;
  const ModuleConfig& config() const noexcept { return config_; }

 protected:
  ProjectedAttention(const ModuleConfig& config, Generator& rng, std::string_view prefix);

 private:
  void check_input(const Tensor& x, const char* what) const;
  AttentionOptions options_for(std::int64_t batch, std::int64_t tq, std::int64_t tk);
  RotaryTable turns(std::int64_t tokens);
  RotaryTable own_turns(std::int64_t tokens);
  RotaryTable turns(const DecoderCache& cache, std::int64_t tokens);

  ModuleConfig config_;
  Generator rng_;
  std::shared_ptr<SequencePart> sequence_;
  std::unique_ptr<Linear> W_query_, W_key_, W_value_, out_proj_;
  RotaryTable rope_;  // of the positions from 0 on that were there so far
  struct Saved {
    Tensor x, source, q, k, v, merged;
    AttentionOptions options;
    AttentionResult attention;
    bool self = false;  // source is x
  };
  std::optional<Saved> saved_;
};

// One head, no mask. Notebooks 000, 001 (which draws kqv) and 002.
class SelfAttentionV2 : public ProjectedAttention {
 public:
  SelfAttentionV2(ModuleConfig config, Generator& rng);
};

// One causal head whose scores are not scaled, with weights drawn in the order kqv. Notebook 003.
class SelfAttentionHead : public ProjectedAttention {
 public:
  SelfAttentionHead(ModuleConfig config, Generator& rng);
};

// One causal head with dropout on its weights. Notebooks 001 and 002.
class CausalAttention : public ProjectedAttention {
 public:
  CausalAttention(ModuleConfig config, Generator& rng, std::string_view prefix = {});
};

// Queries from x, keys and values from another source of any length; no mask.
class CrossAttention : public ProjectedAttention {
 public:
  CrossAttention(ModuleConfig config, Generator& rng);
};

// Heads split from one projection, then out_proj. Notebooks 001 and 002.
class MultiHeadAttention : public ProjectedAttention {
 public:
  MultiHeadAttention(const ModuleConfig& config, Generator& rng);
};

// CausalAttention heads computed one after the other and concatenated: (…, t, d_out · num_heads). Notebook 002.
class MultiHeadAttentionWrapper : public Module {
 public:
  MultiHeadAttentionWrapper(const ModuleConfig& config, Generator& rng);
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Gradient backward(const Tensor& dz) override;
  std::vector<Parameter*> parameters() override;
  void train(bool on = true) override;

 private:
  std::vector<std::unique_ptr<CausalAttention>> heads_;
};

// GPT-2's attention sizes (Radford et al. 2019, table 2; head counts from the released models):
// "117M", "345M", "762M", "1.5B". Throws Error (argument) for another name.
ModuleConfig gpt2_attention(std::string_view size);

}  // namespace attn
