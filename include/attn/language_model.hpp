// A decoder-only language model described by data: GPT-2, Llama, Qwen, Gemma and their like are values of one struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/dropout.hpp"
#include "attn/edits.hpp"
#include "attn/feed_forward.hpp"
#include "attn/kv_cache.hpp"
#include "attn/latent_attention.hpp"
#include "attn/modules.hpp"
#include "attn/norm.hpp"
#include "attn/recurrent_modules.hpp"
#include "attn/rotary.hpp"
#include "attn/sequence.hpp"
#include "attn/weights.hpp"

namespace attn {

struct Head;

// A layer mixes its tokens by softmax attention, or by a gated delta rule (attn/recurrent_modules.hpp).
enum class Mixer { softmax, gated_delta };

struct LayerConfig {
  std::int64_t window = 0;              // a query sees so many keys, its own included; 0 = all before it
  std::optional<std::size_t> rope = 0;  // which of LanguageModelConfig::ropes; none = keys and queries do not turn
  Mixer mixer = Mixer::softmax;
  bool pre_norm_alone = false;  // there are norms of what goes into both parts, and no others, whatever the model has

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

struct LanguageModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;  // the most tokens of a text
  std::int64_t width = 0;
  std::int64_t inner_width = 0;  // of the feed-forward
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0 = heads
  std::int64_t head_dim = 0;  // 0 = width / heads
  // Keys and values are made of latents (attn/latent_attention.hpp), where given: head_dim is then its key(), and
  // kv_heads are the heads.
  std::optional<LatentSizes> latent = {};
  // The layers with a gated delta rule. Default: a GatedDeltaNet of as many heads, with a convolution of 4 tokens.
  std::optional<GatedDeltaConfig> gated_delta = {};
  std::vector<LayerConfig> layers = {};
  std::vector<RopeConfig> ropes = {};
  bool learned_positions = false;  // a row for each position is added to the embedding
  double epsilon = 1e-6;           // of every norm
  NormForm norm = NormForm::rms;
  bool pre_norm = true;    // of what goes into attention and feed-forward
  bool post_norm = false;  // of what comes out, before it is added
  bool sum_norm = false;   // of the sum, as in the first transformers (Vaswani et al. 2017)
  bool causal = true;      // false: every token sees all of its text
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool qkv_bias = false, out_bias = false, feed_forward_bias = false;
  bool gated = true;  // the feed-forward
  Activation activation = Activation::silu;
  std::optional<double> attention_scale = {};  // default 1/√head_dim
  double attention_softcap = 0;                // of scores; 0 = none
  double logits_softcap = 0;
  bool sinks = false;
  bool output_gate = false;    // of softmax attention, ModuleConfig's
  double embedding_scale = 1;  // rounded to the dtype in which the embedding is kept
  double residual_scale = 1;   // of what attention and feed-forward add
  double logits_scale = 1;
  double dropout = 0;  // in train mode: on the embeddings, the attention weights and both branches of a block
  bool tied = false;   // the head shares the embedding's weight
  std::vector<std::int64_t> end_ids = {};    // each ends a text
  Precision precision = Precision::highest;  // of the products, forward and backward
  std::string family = "llama";              // config.json's model_type
  std::string json = {};                     // the config.json that this was read from, which a saved folder gets again

  // The heads of a layer: those that attend, or those that keep a state.
  std::int64_t heads_of(std::int64_t layer) const;
  std::int64_t most_heads() const;  // of any layer

  friend bool operator==(const LanguageModelConfig&, const LanguageModelConfig&) = default;
};

// sum(x + s · post(attention(pre(x)))), then the same of the feed-forward, with those norms that there are. Parameters
// are called as in the files of the family.
class Block : public Module {
 public:
  // Matrices are zeros, to be drawn by the model or loaded; rng is for dropout.
  Block(const LanguageModelConfig& config, const LayerConfig& layer, Generator& rng, std::string_view prefix = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override { return forward(x, RotaryTable{}, trace); }
  // A trace has "inputs", the attention's steps and what it adds, "attn.added" or as the family calls it, "mlp.added"
  // and "output".
  Tensor forward(const Tensor& given, const RotaryTable& turns, Trace* trace = nullptr);
  // As AttentionLayer::forward with a cache. No dropout acts.
  Tensor forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache, std::optional<std::int64_t> item = {});
  Gradient backward(const Tensor& dy) override;
  std::vector<Parameter*> parameters() override;
  void train(bool on = true) override;
  void set_sequence(const std::shared_ptr<SequencePart>& part);  // of x's tokens; null: all
  void set_texts(const Tensor& starts);

  AttentionLayer attention;                   // one number wide, and not used, where there is one of these
  std::unique_ptr<RecurrentLayer> recurrent;  // in its place
  std::unique_ptr<LatentAttention> latent;
  FeedForward feed_forward;

 private:
  // A Branch holds what is around attention or the feed-forward.
  struct Branch {
    std::unique_ptr<Norm> pre, post, sum;
    Dropout dropout;
    Tensor x;  // what went in, where no norm came before
    Tensor input() const { return pre ? pre->output() : x; }
  };
  Branch branch(const LanguageModelConfig& config, const LayerConfig& layer, Generator& rng, const std::string& pre,
                const std::string& post, const std::string& sum);
  template <class F>
  Tensor through(Branch& branch, const Tensor& x, DType kept, bool drops, Trace* trace, const F& part);
  template <class F>
  Tensor back(Branch& branch, const Tensor& dy, const F& part);

  Module& mixer();

  std::string_view attention_name_;
  double residual_scale_;
  Branch attention_branch_, feed_forward_branch_;
};

// How a model's weights begin.
enum class Initial {
  drawn,  // every matrix by torch.nn.init.normal_(weight, 0, 0.02) in the order of parameters(), in GPT-2 the last of
          // each branch by 0.02 / √(2 · layers); vectors as their modules have them
  zeros,  // matrices are zeros, until they are loaded or set
  none,   // all are views of one zero, which take no memory until they are replaced
};

// Token ids go through an embedding, blocks and a last norm to hidden states, and a head makes logits of these.
//
// Parameters are named as in Hugging Face's files, "model.layers.0.self_attn.q_proj.weight", but that GPT-2's attention
// has the book's names (attn/gpt.hpp). A batch of texts of different lengths is padded at its end, with any id: no
// token sees what follows it. A trace records the blocks' steps as "model.layers.0.self_attn.weights", ….
class LanguageModel : public Module {
 public:
  // rng draws the weights, and then dropout's masks.
  LanguageModel(const LanguageModelConfig& config, Generator& rng, Initial initial = Initial::drawn);
  explicit LanguageModel(const LanguageModelConfig& config, Initial initial = Initial::zeros);

  // Token ids int64 (t) or (b, t), in [0, vocab_size), t up to context_length → logits (…, t, vocab_size). With a
  // trace, records each block's steps.
  Tensor forward(const Tensor& ids, Trace* trace = nullptr) override;
  // The same with edits of its steps (attn/edits.hpp).
  Tensor forward(const Tensor& ids, const ForwardOptions& options);
  // The gradient of the last forward(). Ids have none, so that none is returned.
  Gradient backward(const Tensor& d_logits) override;

  // Mean cross-entropy, in nats, of the targets: int64 of the shape of ids, -100 (PyTorch's ignore_index) where there
  // is none. Logits are computed a part at a time. backward() then adds factor · gradient to every parameter's grad,
  // and tells `ready` of each parameter once.
  double loss(const Tensor& ids, const Tensor& targets);
  // Where several batches' gradients are to add up to those of one large batch, the factor is the batch's share of all
  // targets, target_count() / all: a mean over few targets weighs less than one over many.
  void backward(double factor = 1, const GradientsReady& ready = {});
  // How many targets the last loss() or evaluate() had. For none the mean and all gradients are 0, where PyTorch's mean
  // is NaN.
  std::int64_t target_count() const noexcept { return targets_; }
  // The same mean, with nothing kept for a backward pass.
  double evaluate(const Tensor& ids, const Tensor& targets);

  // From now on ids and targets are this process's part of each text, and so is all that comes of them: losses are
  // means over its targets, and a gradient of the whole is a sum over the parts. Null: whole texts.
  void set_sequence(const std::shared_ptr<SequencePart>& part);
  // From now on the source has the weights, of which this model takes one of weight_parts() at a time, or two. Null:
  // they are here.
  void set_weights(std::shared_ptr<WeightSource> source) { weights_ = std::move(source); }
  WeightParts weight_parts();  // the embeddings', each block's, the norm's, the head's unless it is tied
  std::vector<Parameter*> parameters() override;
  void train(bool on = true) override;

  // The end of a pass: x (b, t, width) goes into block `first`, and through all later ones and the last norm; behind
  // the last block, where `first` is their number, there is the norm alone. Throws Error (shape) for another x, for t
  // above context_length, and for a larger `first`.
  Tensor hidden_from(std::size_t first, Tensor x, Trace* trace = nullptr);
  // (…, width) after the last norm → logits (…, vocab_size)
  Tensor logits_of_hidden(const Tensor& hidden);

  const LanguageModelConfig& config() const noexcept { return config_; }
  const Parameter& head() const noexcept { return config_.tied ? embedding : lm_head; }  // (vocab_size, width)

  Parameter embedding;  // (vocab_size, width)
  Parameter positions;  // (context_length, width); value undefined where they are not learned
  Dropout dropout;      // of the embeddings
  std::vector<std::unique_ptr<Block>> blocks;
  Norm norm;
  Parameter lm_head;  // (vocab_size, width); value undefined when tied

 private:
  void draw(Generator& rng);
  Tensor embedded();                               // (b, t, width), of ids_
  Tensor hidden(const Tensor& ids, Trace* trace);  // (b, t, width), after the last norm
  void hidden_backward(const Tensor& d_hidden, const GradientsReady& ready);
  double cross_entropy_of(const Tensor& ids, const Tensor& targets, bool with_gradient);
  Head output_head() const;  // throws Error where its weight is absent()
  Parameter& head_weight() { return config_.tied ? embedding : lm_head; }
  Tensor places() const { return sequence_ ? sequence_->positions() : Tensor{}; }  // of the tokens in their texts

  std::size_t block_part(std::size_t i) const { return (config_.learned_positions ? 2 : 1) + i; }
  std::size_t norm_part() const { return block_part(blocks.size()); }
  std::size_t head_part() const { return config_.tied ? 0 : norm_part() + 1; }

  LanguageModelConfig config_;
  std::shared_ptr<SequencePart> sequence_;
  std::shared_ptr<WeightSource> weights_;
  Tensor ids_;  // (b, t), of the last forward pass
  std::int64_t targets_ = 0;
  Tensor hidden_, logits_;    // of the last forward pass; logits only where they have a softcap
  Tensor d_hidden_, d_head_;  // left by loss() for backward()
};

// Keeps a model's matrices (embeddings, projections, head) in `dtype`: float32, bfloat16 or int8. In bfloat16 they take
// half the memory, and a Decoder half the time; in int8 they take a quarter of the memory. An int8 matrix has a float32
// scale for each row: a 127th of the row's largest magnitude, and at least 2^-126. No number is off by more than half
// of its scale. Sums stay in float32. Such a model decodes; in bfloat16 it can be saved, too. forward() and training
// want float32. Throws Error (dtype) for another dtype, and (argument) for a matrix with NaN or infinities in int8, or
// one that is in int8 already.
void store_matrices(LanguageModel& model, DType dtype);

}  // namespace attn
