// What all causal language models have, above their blocks: logits, the loss, and their gradients.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attn/modules.hpp"
#include "attn/sequence.hpp"
#include "attn/weights.hpp"

namespace attn {

struct Head;

// Token ids go through an embedding, blocks and a last norm to hidden states, and a head makes logits of these: GPT
// (attn/gpt.hpp) and LanguageModel (attn/language_model.hpp) say how.
class CausalLM : public Module {
 public:
  // Token ids int64 (t) or (b, t), in [0, vocab_size), t up to context_length → logits (…, t, vocab_size). With a
  // trace, records each block's steps.
  Tensor forward(const Tensor& ids, Trace* trace = nullptr) override;
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
  virtual void set_sequence(const std::shared_ptr<SequencePart>& part) = 0;
  // From now on the source has the weights, of which this model takes one of weight_parts() at a time, or two. Null:
  // they are here.
  void set_weights(std::shared_ptr<WeightSource> source) { weights_ = std::move(source); }
  virtual WeightParts weight_parts() = 0;  // the embedding's, each block's, the norm's, the head's unless it is tied
  std::vector<Parameter*> parameters() override;

 protected:
  // `op` names the model in errors. `embedding_parts` is how many of weight_parts() the embedding has.
  CausalLM(const char* op, std::size_t embedding_parts) : op_(op), first_block_(embedding_parts) {}

  virtual Tensor hidden(const Tensor& ids, Trace* trace) = 0;  // (b, t, width), after the last norm
  virtual void hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) = 0;
  virtual std::size_t block_count() const = 0;
  virtual bool tied() const = 0;
  virtual Parameter& head_weight() = 0;  // (vocab_size, width)
  virtual Head output_head() = 0;        // throws Error where its weight is absent()

  std::size_t block_part(std::size_t i) const { return first_block_ + i; }
  std::size_t norm_part() const { return block_part(block_count()); }
  std::size_t head_part() const { return tied() ? 0 : norm_part() + 1; }

  std::shared_ptr<SequencePart> sequence_;
  std::shared_ptr<WeightSource> weights_;
  Tensor ids_;  // (b, t), of the last forward pass

 private:
  double cross_entropy_of(const Tensor& ids, const Tensor& targets, bool with_gradient);

  const char* op_;
  std::size_t first_block_;
  std::int64_t targets_ = 0;
  Tensor hidden_, logits_;    // of the last forward pass; logits only where they have a softcap
  Tensor d_hidden_, d_head_;  // left by loss() for backward()
};

}  // namespace attn
