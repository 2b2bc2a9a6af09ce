// A decoder-only language model described by data: Llama, Qwen, Gemma and their like are values of one struct.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/blocks.hpp"
#include "attn/causal_lm.hpp"
#include "attn/kv_cache.hpp"
#include "attn/rotary.hpp"

namespace attn {

struct LayerConfig {
  std::int64_t window = 0;              // a query sees so many keys, its own included; 0 = all before it
  std::optional<std::size_t> rope = 0;  // which of LanguageModelConfig::ropes; none = positions play no part
};

struct LanguageModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;  // the most tokens of a text
  std::int64_t width = 0;
  std::int64_t inner_width = 0;  // of the feed-forward
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0 = heads
  std::int64_t head_dim = 0;  // 0 = width / heads
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;
  double epsilon = 1e-6;  // of every RMSNorm
  RmsWeight norm = RmsWeight::scales;
  bool pre_norm = true;    // of what goes into attention and feed-forward
  bool post_norm = false;  // of what comes out, before it is added
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool qkv_bias = false, out_bias = false, feed_forward_bias = false;
  Activation activation = Activation::silu;
  std::optional<double> attention_scale = {};  // default 1/√head_dim
  double attention_softcap = 0;                // of scores; 0 = none
  double logits_softcap = 0;
  bool sinks = false;
  double embedding_scale = 1;  // rounded to the dtype in which the embedding is kept
  double residual_scale = 1;   // of what attention and feed-forward add
  double logits_scale = 1;
  bool tied = false;                       // the head shares the embedding's weight
  std::vector<std::int64_t> end_ids = {};  // each ends a text
  Precision precision = Precision::highest;
  std::string family = "llama";  // config.json's model_type
  std::string json = {};         // the config.json that this was read from, which a saved folder gets again
};

// x + s · post(attention(pre(x))), then the same of the feed-forward. The norms are called as in the files of the
// family: where only one of pre and post is there, "post_attention_layernorm" is what comes after attention in Llama
// (the norm before the feed-forward), and attention's own post-norm in OLMo 2.
class DecoderBlock : public Module {
 public:
  DecoderBlock(const LanguageModelConfig& config, const LayerConfig& layer, std::string_view prefix = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override { return forward(x, RotaryTable{}, trace); }
  Tensor forward(const Tensor& x, const RotaryTable& turns, Trace* trace = nullptr);
  Tensor forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache, std::optional<std::int64_t> item = {});
  Gradient backward(const Tensor& dy) override;
  std::vector<Parameter*> parameters() override;

  GroupedQueryAttention attention;
  GatedFeedForward feed_forward;

 private:
  // Attention or feed-forward, with the norms around it.
  struct Branch {
    std::unique_ptr<RMSNorm> pre, post;
  };
  template <class F>
  Tensor through(Branch& branch, const Tensor& x, DType kept, const F& part);
  template <class F>
  Tensor back(Branch& branch, const Tensor& dy, const F& part);

  double residual_scale_;
  Branch attention_norms_, feed_forward_norms_;
};

// Parameters are named as in Hugging Face's files: "model.layers.0.self_attn.q_proj.weight". All are zeros, but for
// norms, until they are loaded (attn/pretrained.hpp) or set. No dropout acts in these models.
//
// A batch of texts of different lengths is padded at its end, with any id: no token sees what follows it. A trace
// records the blocks' steps as "model.layers.0.self_attn.weights", ….
class LanguageModel : public CausalLM {
 public:
  // Unless `allocate`, parameters are views of one zero, which take no memory until they are replaced.
  explicit LanguageModel(const LanguageModelConfig& config, bool allocate = true);

  void set_sequence(const std::shared_ptr<SequencePart>& part) override;
  WeightParts weight_parts() override;

  const LanguageModelConfig& config() const noexcept { return config_; }
  const Parameter& head() const noexcept { return config_.tied ? embedding : lm_head; }

  Parameter embedding;  // (vocab_size, width)
  std::vector<std::unique_ptr<DecoderBlock>> blocks;
  RMSNorm norm;
  Parameter lm_head;  // (vocab_size, width); value undefined when tied

 private:
  Tensor hidden(const Tensor& ids, Trace* trace) override;
  void hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) override;
  std::size_t block_count() const override { return blocks.size(); }
  bool tied() const override { return config_.tied; }
  Parameter& head_weight() override { return config_.tied ? embedding : lm_head; }
  Head output_head() override;
  Tensor embedded();  // (b, t, width), of ids_

  LanguageModelConfig config_;
};

// Keeps the matrices in `dtype`, float32, bfloat16 or int8, as store_matrices() of a GPT (attn/generate.hpp).
void store_matrices(LanguageModel& model, DType dtype);

// A language model that remembers the keys and values of what it has read. The texts of a batch grow independently, and
// each has the logits that it has alone. A layer with a window keeps the keys that it shows, up to a quarter
// more, and a piece; long prompts are read in pieces of 512 tokens. `model` must outlive it and keep its weights.
// `make` makes the layers' caches; without it they are KVCaches.
class LanguageDecoder {
 public:
  explicit LanguageDecoder(LanguageModel& model, std::int64_t batch = 1, DType cache = DType::f32,
                           const MakeCache& make = {});

  // Further tokens of one text, at least one → the logits (vocab_size) that follow the last. Throws Error when they are
  // more than context_length in all, or outside the vocabulary, and is then as before.
  Tensor read(std::int64_t item, std::span<const std::int64_t> ids);
  // One token more of every text → logits (b, vocab_size).
  Tensor read(std::span<const std::int64_t> ids);

  std::int64_t length(std::int64_t item = 0) const;  // tokens read
  std::size_t bytes() const;                         // of memory that the caches hold

 private:
  Tensor run(const Tensor& ids, const std::vector<RotaryTable>& turns, std::optional<std::int64_t> item);
  Tensor read_pieces(std::int64_t item, std::span<const std::int64_t> ids, std::int64_t serves);
  void prepare(std::int64_t item, std::int64_t length);
  void check(std::span<const std::int64_t> ids, std::int64_t longest) const;
  std::vector<RotaryTable> turns(std::int64_t first, std::int64_t tokens, std::int64_t serves) const;
  std::vector<RotaryTable> next_turns() const;

  LanguageModel* model_;
  std::vector<std::unique_ptr<DecoderCache>> caches_;  // one a layer
  std::vector<std::int64_t> length_;                   // of each item
  std::int64_t switches_at_ = 0;                       // past this length the keys in a cache turn otherwise; 0 = never
  std::vector<std::vector<std::int64_t>> texts_;       // to be read again then
};

}  // namespace attn
