#include "attn/language_model.hpp"

#include <string>

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "ops/embedding.hpp"
#include "lm/head.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"
#include "ops/stored.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "LanguageModel";

LanguageModelConfig checked(LanguageModelConfig c) {
  require_positive(kOp, "vocab_size", c.vocab_size);
  require_positive(kOp, "context_length", c.context_length);
  require_positive(kOp, "width", c.width);
  require_positive(kOp, "inner_width", c.inner_width);
  require_positive(kOp, "heads", c.heads);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = c.width / c.heads;
  require_finite(kOp, "attention_softcap", c.attention_softcap, 0);
  require_finite(kOp, "logits_softcap", c.logits_softcap, 0);
  require_finite(kOp, "embedding_scale", c.embedding_scale);
  require_finite(kOp, "residual_scale", c.residual_scale);
  require_finite(kOp, "logits_scale", c.logits_scale);
  if (!c.pre_norm && !c.post_norm) throw Error(Error::Kind::argument, kOp, "pre_norm or post_norm", "neither");
  for (const LayerConfig& layer : c.layers) {
    if (layer.rope && *layer.rope >= c.ropes.size()) {
      throw Error(Error::Kind::argument, kOp, "a layer's rope among " + std::to_string(c.ropes.size()),
                  std::to_string(*layer.rope));
    }
  }
  return c;
}

Tensor batched(const Tensor& ids) { return (ids.rank() == 2 ? ids : ids.unsqueeze(0)).contiguous(); }

}  // namespace

LanguageModel::LanguageModel(const LanguageModelConfig& config, bool allocate)
    : CausalLM(kOp, 1),
      norm(checked(config).width, config.epsilon, config.norm, "model.norm"),
      config_(checked(config)) {
  const auto zeros = [&](const Shape& shape) {
    return allocate ? Tensor::zeros(shape) : Tensor::zeros({1}).expand(shape);
  };
  const Shape matrix{config.vocab_size, config.width};
  embedding = {"model.embed_tokens.weight", zeros(matrix), {}};
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    blocks.push_back(std::make_unique<DecoderBlock>(config_, config_.layers[i], prefix));
    if (allocate) continue;
    for (Parameter* p : blocks.back()->parameters()) p->value = zeros(p->value.shape());
  }
  lm_head = {"lm_head.weight", config.tied ? Tensor{} : zeros(matrix), {}};
}

WeightParts LanguageModel::weight_parts() {
  WeightParts parts{{&embedding}};
  for (const auto& block : blocks) parts.push_back(block->parameters());
  parts.push_back({&norm.weight});
  if (!config_.tied) parts.push_back({&lm_head});
  return parts;
}

Tensor LanguageModel::embedded() {
  const Held held(weights_.get(), 0, block_part(0));
  return embed(ids_, embedding, config_.embedding_scale);
}

Tensor LanguageModel::hidden(const Tensor& ids, Trace* trace) {
  check_ids(ids, config_.vocab_size, config_.context_length);
  require_part(kOp, sequence_.get(), ids, -1, config_.context_length);
  ids_ = batched(ids);
  const std::int64_t tokens = sequence_ ? sequence_->tokens() : ids_.size(1);
  std::vector<RotaryTable> turns;
  for (const RopeConfig& rope : config_.ropes) {
    const RotaryFrequencies frequencies = rotary_frequencies(rope, tokens);
    turns.push_back(sequence_ ? rotary_table(frequencies, sequence_->positions()) : rotary_table(frequencies, tokens));
  }
  Tensor x = embedded();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Trace::Scope scope(trace, "model.layers." + std::to_string(i));
    const Held held(weights_.get(), block_part(i), block_part(i + 1));
    if (i + 1 == blocks.size()) held.also(head_part());
    const auto rope = config_.layers[i].rope;
    x = blocks[i]->forward(x, rope ? turns[*rope] : RotaryTable{}, trace);
  }
  const Held held(weights_.get(), norm_part());
  return norm.forward(x, DType::f32);
}

Head LanguageModel::output_head() {
  require_present(head());
  return {head().value, config_.precision, config_.logits_scale, config_.logits_softcap, head().scales};
}

void LanguageModel::hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) {
  const auto done = [&](const std::vector<Parameter*>& some) {
    if (ready) ready(some);
  };
  // hidden = norm(block[n](… block[0](scale · embedding[ids])))
  const auto before = [&](std::size_t i) { return i > 0 ? std::optional(block_part(i - 1)) : std::nullopt; };
  Tensor dx;
  {
    const Held held(weights_.get(), norm_part(), before(blocks.size()));
    dx = norm.backward(d_hidden).x;
  }
  done({&norm.weight});
  for (std::size_t i = blocks.size(); i-- > 0;) {
    {
      const Held held(weights_.get(), block_part(i), before(i));
      dx = blocks[i]->backward(dx).x;
    }
    done(blocks[i]->parameters());
  }
  if (!embedding.grad.defined()) embedding.grad = Tensor::zeros(embedding.value.shape());
  scale_in_place(dx, config_.embedding_scale);
  embed_backward(dx, ids_, embedding.grad, {});
  done({&embedding});
}

void LanguageModel::set_sequence(const std::shared_ptr<SequencePart>& part) {
  sequence_ = part;
  for (const auto& block : blocks) block->attention.set_sequence(part);
}

void store_matrices(LanguageModel& model, DType dtype) {
  store_matrices(std::span<Parameter* const>(model.parameters()), dtype);
}

}  // namespace attn
