// The attention mechanisms of the book's chapter 3 and of the lecture after it, as modules.
// Names, weight shapes and initial values are PyTorch's, so state_dicts go both ways. Notebooks have the numbers that
// `attn check` gives them: 000, 001, 002 and 004 follow the book's chapter 3, and 003 follows the lecture.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/attention.hpp"
#include "attn/kv_cache.hpp"
#include "attn/module.hpp"
#include "attn/norm.hpp"
#include "attn/rotary.hpp"
#include "attn/sequence.hpp"

namespace attn {

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

// Where RMSNorm acts on queries and keys before they turn (Henry et al. 2020): nowhere, on each head (Qwen 3, Gemma 3),
// or on all heads together (OLMo 2).
enum class QueryKeyNorm { none, each_head, all_heads };

// How many numbers each part of latent attention has, by the names of config.json in Hugging Face's models.
struct LatentSizes {
  std::int64_t query = 0;   // q_lora_rank: of which the queries are made; 0 = of the token itself
  std::int64_t latent = 0;  // kv_lora_rank: of which keys and values are made
  std::int64_t plain = 0;   // qk_nope_head_dim: of a head's queries and keys, those that do not turn
  std::int64_t rotary = 0;  // qk_rope_head_dim: those behind them, which turn; all heads' keys share theirs; 0 = none
  std::int64_t value = 0;   // v_head_dim: of a head's values

  std::int64_t key() const noexcept { return plain + rotary; }      // of a head's queries and keys
  std::int64_t cached() const noexcept { return latent + rotary; }  // of a token, whatever the number of heads
  friend bool operator==(const LatentSizes&, const LatentSizes&) = default;
};

struct ModuleConfig {
  std::int64_t d_in = 0;
  std::int64_t d_out = 0;
  std::int64_t context_length = 0;  // longest input; 0 = any
  double dropout = 0;               // on the attention weights, in train mode
  std::int64_t num_heads = 1;
  std::int64_t kv_heads = 0;  // key heads, each of which so many query heads share (Ainslie et al. 2023); 0 = num_heads
  std::int64_t head_dim = 0;  // 0 = d_out / num_heads; another needs an out_proj
  bool qkv_bias = false;
  bool out_bias = true;     // of the output projection
  bool causal = true;       // false: the encoder's block
  std::int64_t window = 0;  // a query sees so many keys, its own included; 0 = all before it
  double softcap = 0;       // of the scores; 0 = none
  bool sinks = false;       // one more score a head, learned (attn/attention.hpp)
  // Twice as many rows of W_query, of each head first those of the query and then those of a gate: what the head gives
  // is multiplied by the gate's sigmoid before out_proj (Qiu et al. 2025, "Gated Attention for Large Language Models").
  bool output_gate = false;
  std::optional<double> scale = {};            // default 1/√head_dim
  std::optional<LayerOrder> layer_order = {};  // default qkv; SelfAttentionHead's is kqv
  // Queries and keys turn by their positions before they meet, and a cache's tokens count. Keys from another source do
  // not turn.
  std::optional<RotaryFrequencies> rope = {};
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  LatentSizes latents = {};  // of the module "latent" alone (attn/latent_attention.hpp)
  double epsilon = 1e-6;     // of that norm, as the next
  NormForm norm = NormForm::rms;
  bool out_proj = true;                      // of MultiHeadAttention
  bool initialise = true;                    // false: draws nothing, every weight is 0 until it is loaded
  Precision precision = Precision::highest;  // of projections and attention, forward and backward
};

// An attention layer's parameters are called as in the book, or as in Hugging Face's Llama.
struct AttentionNames {
  std::string_view query = "W_query", key = "W_key", value = "W_value", out = "out_proj";
  std::string_view query_norm = "q_norm", key_norm = "k_norm", sinks = "sinks";
};
constexpr AttentionNames kLlamaAttentionNames{"q_proj", "k_proj", "v_proj", "o_proj"};

// Is told what the heads of a layer gave, before out_proj joins them, and the gradient of that, both (b, heads, tq,
// head_dim), and the values that they made it of, (b, kv_heads, tk, head_dim).
using HeadGradientTold = std::function<void(const Tensor& context, const Tensor& d_context, const Tensor& values)>;

// Linear projections, then attention over num_heads consecutive slices (weight splits), then an output projection. Each
// module below is one choice of these. Throws Error for a config that does not fit (argument), for inputs of other
// sizes (shape) or dtypes (dtype), and for backward() without a forward pass.
class AttentionLayer : public Module {
 public:
  AttentionLayer(const ModuleConfig& config, Generator& rng, std::string_view prefix = {},
                 const AttentionNames& names = {});
  // x is (b, t, d_in) or (t, d_in).
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override { return forward(x, x, trace); }
  // Queries come from x (…, tq, d_in), keys and values from source (…, tk, d_in).
  Tensor forward(const Tensor& x, const Tensor& source, Trace* trace);
  // Queries and keys turn by a table of the tokens' positions, in place of the config's. It is (t, …), or (b, t, …)
  // where items have positions of their own; an empty one turns nothing.
  Tensor forward(const Tensor& x, const RotaryTable& turns, Trace* trace = nullptr);
  // A decoder's step. The tokens x (…, t, d_in) follow those in the cache, which takes their keys and values. The cache
  // must have this module's heads and x's batch. No dropout acts, and nothing is kept for backward().
  Tensor forward(const Tensor& x, DecoderCache& cache);
  // The same by a table. With an item, x is (1, t, d_in) and follows that item's tokens.
  Tensor forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache, std::optional<std::int64_t> item = {});

  // When x was its own source, the whole gradient is in x and source is undefined.
  Gradient backward(const Tensor& dz) override;

  // From now on x is this process's part of each sequence, its own source and without a trace, and a table that of its
  // tokens. Null: whole sequences. A cache has whole ones.
  void set_sequence(std::shared_ptr<SequencePart> part) { sequence_ = std::move(part); }

  // From now on x (1, t, d_in) holds several texts one after the other, none of which sees another: int64 (n + 1),
  // where they begin and the last ends. Undefined: each batch item is a text.
  void set_texts(Tensor starts) { starts_ = std::move(starts); }

  std::vector<Parameter*> parameters() override;
  const ModuleConfig& config() const noexcept { return config_; }  // with no 0 that stands for another number

  // Is told by each backward(). Null: nobody is.
  HeadGradientTold on_backward;

 private:
  struct Heads {
    Tensor q, k, v;    // (b, heads, t, head_dim)
    Tensor gate = {};  // (b, t, heads · head_dim), where there is one
  };
  // A forward pass, as backward() needs it.
  struct Saved {
    Tensor x, source;
    Heads heads;
    RotaryTable q_turns, k_turns;
    AttentionOptions options;
    AttentionResult attention;
    Tensor merged;      // (b, tq, heads · head_dim), as out_proj takes it
    bool self = false;  // source is x
  };

  void check_input(const Tensor& x, const char* what) const;
  Tensor run(const Tensor& given, const Tensor& given_source, const RotaryTable& q_turns, const RotaryTable& k_turns,
             Trace* trace);
  Heads project_heads(const Tensor& x, const Tensor& source, DType kept);
  Tensor split_gate(Tensor& queries) const;
  AttentionOptions options(Align align) const;
  RotaryTable turns(std::int64_t tokens);
  RotaryTable own_turns(std::int64_t tokens);
  RotaryTable turns(const DecoderCache& cache, std::int64_t tokens);

  ModuleConfig config_;
  Generator rng_;
  std::shared_ptr<SequencePart> sequence_;
  Tensor starts_;  // of the texts in x, where it holds several
  std::unique_ptr<Linear> query_, key_, value_, out_;
  std::unique_ptr<Norm> query_norm_, key_norm_;
  Parameter sinks_;   // (num_heads)
  RotaryTable rope_;  // of the positions from 0 on that were there so far
  std::optional<Saved> saved_;
};

// One head, no mask. Notebooks 000, 001 (which draws kqv) and 002.
class SelfAttentionV2 : public AttentionLayer {
 public:
  SelfAttentionV2(ModuleConfig config, Generator& rng);
};

// One causal head whose scores are not scaled, with weights drawn in the order kqv. Notebook 003.
class SelfAttentionHead : public AttentionLayer {
 public:
  SelfAttentionHead(ModuleConfig config, Generator& rng);
};

// One causal head with dropout on its weights. Notebooks 001 and 002.
class CausalAttention : public AttentionLayer {
 public:
  CausalAttention(ModuleConfig config, Generator& rng, std::string_view prefix = {});
};

// Queries from x, keys and values from another source of any length; no mask.
class CrossAttention : public AttentionLayer {
 public:
  CrossAttention(ModuleConfig config, Generator& rng);
};

// Heads split from one projection, then out_proj. Notebooks 001 and 002.
class MultiHeadAttention : public AttentionLayer {
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
