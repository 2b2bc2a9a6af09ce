#include "attn/language_model.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "lm/editor.hpp"
#include "lm/head.hpp"
#include "lm/names.hpp"
#include "ops/dense.hpp"
#include "ops/embedding.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"
#include "ops/stored.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kLanguageModel = "LanguageModel";

LanguageModelConfig checked(LanguageModelConfig c) {
  require_known(kLanguageModel, "precision", c.precision, Precision::medium);
  require_positive(kLanguageModel, "vocab_size", c.vocab_size);
  require_positive(kLanguageModel, "context_length", c.context_length);
  require_positive(kLanguageModel, "width", c.width);
  require_positive(kLanguageModel, "inner_width", c.inner_width);
  require_positive(kLanguageModel, "heads", c.heads);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = c.width / c.heads;
  for (const double cap : {c.attention_softcap, c.logits_softcap}) {
    if (cap == 0 || (cap >= 0x1p-64 && cap <= 0x1p64)) continue;  // float32 divides by it
    throw Error(Error::Kind::argument, kLanguageModel, "softcaps of 0 (none), or from 2^-64 to 2^64",
                shortest_decimal(cap));
  }
  require_finite(kLanguageModel, "embedding_scale", static_cast<float>(c.embedding_scale));
  require_finite(kLanguageModel, "residual_scale", static_cast<float>(c.residual_scale));
  require_finite(kLanguageModel, "logits_scale", static_cast<float>(c.logits_scale));
  if (!c.pre_norm && !c.post_norm && !c.sum_norm) {
    throw Error(Error::Kind::argument, kLanguageModel, "pre_norm, post_norm or sum_norm", "none");
  }
  for (const LayerConfig& layer : c.layers) {
    require_known(kLanguageModel, "a layer's mixer", layer.mixer, Mixer::gated_delta);
    if (layer.rope && *layer.rope >= c.ropes.size()) {
      throw Error(Error::Kind::argument, kLanguageModel, "a layer's rope among " + std::to_string(c.ropes.size()),
                  std::to_string(*layer.rope));
    }
  }
  return c;
}

// A copy: backward() writes to the rows of these ids, whatever the caller's are by then.
Tensor batched(const Tensor& ids) { return (ids.rank() == 2 ? ids : ids.unsqueeze(0)).clone(); }

// One that lives until the end of the expression.
Generator& lvalue(Generator&& rng) { return rng; }

}  // namespace

std::int64_t LanguageModelConfig::heads_of(std::int64_t layer) const {
  const bool keeps_state = layers.at(static_cast<std::size_t>(layer)).mixer == Mixer::gated_delta;
  return keeps_state && gated_delta ? gated_delta->value_heads : heads;
}

std::int64_t LanguageModelConfig::most_heads() const {
  std::int64_t most = 0;
  for (std::int64_t l = 0; l < std::ssize(layers); ++l) most = std::max(most, heads_of(l));
  return most;
}

LanguageModel::LanguageModel(const LanguageModelConfig& config, Generator& rng, Initial initial)
    : dropout(config.dropout, rng),
      norm(config.norm, checked(config).width, config.epsilon, names_of(config.family).norm),
      config_(checked(config)) {
  require_known(kLanguageModel, "initial", initial, Initial::none);
  const ModelNames& names = names_of(config_.family);
  const auto zeros = [&](const Shape& shape) {
    return initial == Initial::none ? Tensor::zeros({1}).expand(shape) : Tensor::zeros(shape);
  };
  const Shape matrix{config_.vocab_size, config_.width}, places{config_.context_length, config_.width};
  embedding = {names.embedding, zeros(matrix), {}};
  positions = {names.positions, config_.learned_positions ? zeros(places) : Tensor{}, {}};
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    const std::string prefix = names.blocks + std::to_string(i) + ".";
    blocks.push_back(std::make_unique<Block>(config_, config_.layers[i], rng, prefix));
    if (initial != Initial::none) continue;
    for (Parameter* p : blocks.back()->parameters()) p->value = zeros(p->value.shape());
  }
  lm_head = {"lm_head.weight", config_.tied ? Tensor{} : zeros(matrix), {}};
  if (initial == Initial::drawn) draw(rng);
}

LanguageModel::LanguageModel(const LanguageModelConfig& config, Initial initial)
    : LanguageModel(config, lvalue(Generator(0)), initial) {}

void LanguageModel::draw(Generator& rng) {
  constexpr double usual = 0.02;
  const double residual = usual / std::sqrt(2 * static_cast<double>(config_.layers.size()));
  for (Parameter* p : parameters()) {                                        // called by the constructor
    if (p->value.rank() != 2 || p->name.ends_with("conv.weight")) continue;  // which begins as each token itself
    const bool ends_branch =
        config_.family == "gpt2" && (p->name.ends_with("out_proj.weight") || p->name.ends_with("c_proj.weight"));
    p->value = rng.randn(p->value.shape());
    scale_in_place(p->value, ends_branch ? residual : usual);
  }
}

WeightParts LanguageModel::weight_parts() {
  WeightParts parts{{&embedding}};
  if (config_.learned_positions) parts.push_back({&positions});
  for (const auto& block : blocks) parts.push_back(block->parameters());
  parts.push_back(norm.parameters());
  if (!config_.tied) parts.push_back({&lm_head});
  return parts;
}

std::vector<Parameter*> LanguageModel::parameters() {
  std::vector<Parameter*> all;
  for (const std::vector<Parameter*>& part : weight_parts()) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Tensor LanguageModel::embedded() {
  const Held tokens(weights_.get(), 0, 1);
  const Tensor x = embed(ids_, embedding, config_.embedding_scale);
  if (!config_.learned_positions) return x;
  const Held rows(weights_.get(), 1, block_part(0));
  add_positions(x, positions, places());
  return x;
}

// hidden = norm(block[n](… block[0](dropout(scale · embedding[ids] + positions))))
Tensor LanguageModel::hidden(const Tensor& ids, Trace* trace) {
  check_ids(ids, config_.vocab_size, config_.context_length);
  require_part(kLanguageModel, sequence_.get(), ids, -1, config_.context_length);
  ids_ = batched(ids);
  return hidden_from(0, dropout.forward(embedded()), trace);
}

Tensor LanguageModel::hidden_from(std::size_t first, Tensor x, Trace* trace) {
  if (first > blocks.size() || x.rank() != 3 || x.size(1) > config_.context_length || x.size(2) != config_.width) {
    throw Error(Error::Kind::shape, kLanguageModel, "x (batch, tokens, width) into one of its blocks, or behind them",
                x.shape().str() + " into " + std::to_string(first));
  }
  const std::int64_t tokens = sequence_ ? sequence_->tokens() : x.size(1);
  std::vector<RotaryTable> turns;
  for (const RopeConfig& rope : config_.ropes) {
    const RotaryFrequencies frequencies = rotary_frequencies(rope, tokens);
    turns.push_back(sequence_ ? rotary_table(frequencies, places()) : rotary_table(frequencies, tokens));
  }
  for (std::size_t i = first; i < blocks.size(); ++i) {
    const Trace::Scope scope(trace, names_of(config_.family).blocks + std::to_string(i));
    const Held held(weights_.get(), block_part(i), block_part(i + 1));
    if (i + 1 == blocks.size()) held.also(head_part());
    const auto rope = config_.layers[i].rope;
    x = blocks[i]->forward(x, rope ? turns[*rope] : RotaryTable{}, trace);
  }
  const Held held(weights_.get(), norm_part());
  return norm.forward(x, DType::f32);
}

void LanguageModel::hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) {
  const auto done = [&](const std::vector<Parameter*>& some) {
    if (ready) ready(some);
  };
  const auto before = [&](std::size_t i) { return i > 0 ? std::optional(block_part(i - 1)) : std::nullopt; };
  Tensor dx;
  {
    const Held held(weights_.get(), norm_part(), before(blocks.size()));
    dx = norm.backward(d_hidden).x;
  }
  done(norm.parameters());
  for (std::size_t i = blocks.size(); i-- > 0;) {
    {
      const Held held(weights_.get(), block_part(i), before(i));
      dx = blocks[i]->backward(dx).x;
    }
    done(blocks[i]->parameters());
  }
  dx = dropout.backward(dx).x;
  std::vector<Parameter*> tables{&embedding};
  if (config_.learned_positions) tables.push_back(&positions);
  scale_in_place(dx, config_.embedding_scale);
  embed_backward(dx, ids_, table_gradient(embedding), table_gradient(positions), places());
  done(tables);
}

Head LanguageModel::output_head() const {
  require_present(head());
  return {head().value,  config_.precision, config_.logits_scale, config_.logits_softcap,
          head().scales, head().blocks,     head().requires_grad};
}

Tensor LanguageModel::logits_of_hidden(const Tensor& hidden) {
  const Held held(weights_.get(), head_part());
  return logits_of(output_head(), hidden);
}

Tensor LanguageModel::forward(const Tensor& ids, Trace* trace) {
  const Tensor last = hidden(ids, trace);
  const Held held(weights_.get(), head_part());
  const Head head = output_head();
  const Tensor logits = logits_of(head, last);
  hidden_ = grad_enabled() ? last : Tensor{};
  logits_ = grad_enabled() && head.softcap > 0 ? logits : Tensor{};
  d_hidden_ = {};
  return ids.rank() == 1 ? logits.select(0, 0) : logits;
}

Tensor LanguageModel::forward(const Tensor& ids, const ForwardOptions& options) {
  return editing::forward(*this, config_, ids, options);
}

Module::Gradient LanguageModel::backward(const Tensor& d_logits) {
  require_forward(kLanguageModel, hidden_.defined());
  const Tensor dy = d_logits.rank() == 2 ? d_logits.unsqueeze(0) : d_logits;
  if (dy.rank() != 3 || dy.size(-1) != config_.vocab_size || row_count(dy) != ids_.numel()) {
    throw Error(Error::Kind::shape, kLanguageModel, "d_logits of the logits' shape", d_logits.shape().str());
  }
  HeadGradient grad;
  {
    const Held held(weights_.get(), head_part(), norm_part());
    grad = logits_backward(output_head(), dy, logits_, hidden_);
  }
  accumulate(head_weight(), grad.weight);
  hidden_backward(grad.hidden, {});
  return {};
}

double LanguageModel::loss(const Tensor& ids, const Tensor& targets) { return cross_entropy_of(ids, targets, true); }

double LanguageModel::evaluate(const Tensor& ids, const Tensor& targets) {
  return cross_entropy_of(ids, targets, false);
}

double LanguageModel::cross_entropy_of(const Tensor& ids, const Tensor& targets, bool with_gradient) {
  if (!(ids.shape() == targets.shape())) {
    throw Error(Error::Kind::shape, kLanguageModel, "targets of the shape of ids " + ids.shape().str(),
                targets.shape().str());
  }
  std::optional<NoGrad> no_grad;
  if (!with_gradient) no_grad.emplace();
  d_hidden_ = d_head_ = logits_ = {};
  hidden_ = hidden(ids, nullptr);
  HeadLoss found;
  {
    const Held held(weights_.get(), head_part());
    if (with_gradient) held.also(norm_part());
    if (with_gradient && !blocks.empty()) held.also(block_part(blocks.size() - 1));
    found = head_loss(output_head(), hidden_, targets, with_gradient);
  }
  if (!grad_enabled()) hidden_ = {};
  targets_ = found.count;
  d_hidden_ = found.gradient.hidden, d_head_ = found.gradient.weight;
  return found.loss;
}

void LanguageModel::backward(double factor, const GradientsReady& ready) {
  if (!d_hidden_.defined()) throw Error(Error::Kind::argument, kLanguageModel, "loss() before backward()", "no loss");
  scale_in_place(d_hidden_, factor);
  if (d_head_.defined()) scale_in_place(d_head_, factor);
  accumulate(head_weight(), d_head_);
  if (ready && !config_.tied) ready(std::vector<Parameter*>{&head_weight()});
  hidden_backward(d_hidden_, ready);
  d_hidden_ = d_head_ = {};
}

void LanguageModel::train(bool on) {
  Module::train(on);
  dropout.train(on);
  for (const auto& block : blocks) block->train(on);
}

void LanguageModel::set_sequence(const std::shared_ptr<SequencePart>& part) {
  sequence_ = part;
  dropout.set_sequence(part);
  for (const auto& block : blocks) block->set_sequence(part);
}

void store_matrices(LanguageModel& model, DType dtype) {
  store_matrices(std::span<Parameter* const>(model.parameters()), dtype);
}

}  // namespace attn
