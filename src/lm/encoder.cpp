#include "attn/encoder.hpp"

#include <cmath>
#include <string>

#include "attn/error.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "lm/editor.hpp"
#include "lm/names.hpp"
#include "ops/embedding.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr const char* kEncoder = "Encoder";
constexpr std::size_t kTokens = 8192;  // of short texts that are computed together

Generator& lvalue(Generator&& rng) { return rng; }

// A copy: backward() writes to the rows of these ids, whatever the caller's are by then.
Tensor batched(const Tensor& ids) { return (ids.rank() == 2 ? ids : ids.unsqueeze(0)).clone(); }

}  // namespace

Tensor pool(const Tensor& hidden, Pooling pooling, bool normalised) {
  if (!hidden.defined() || hidden.rank() != 2 || hidden.size(0) == 0) {
    throw Error(Error::Kind::shape, "pool", "hidden (tokens, width) of at least one token",
                hidden.defined() ? hidden.shape().str() : "no tensor");
  }
  require_known("pool", "pooling", pooling, Pooling::first);
  const Tensor states = hidden.to(DType::f32).contiguous();
  const std::int64_t width = hidden.size(1);
  const Tensor vector = Tensor::empty({width});
  const std::int64_t rows = pooling == Pooling::mean ? hidden.size(0) : 1;
  const float* from = states.data<float>();
  double squares = 0;
  for (std::int64_t j = 0; j < width; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += static_cast<double>(from[i * width + j]);
    sum /= static_cast<double>(rows);
    vector.data<float>()[j] = static_cast<float>(sum);
    squares += sum * sum;
  }
  constexpr double least = 1e-12;  // as torch.nn.functional.normalize has it
  if (normalised) scale_in_place(vector, 1 / std::max(std::sqrt(squares), least));
  return vector;
}

Encoder::Encoder(const EncoderConfig& config, Initial initial)
    : norm(config.model.norm, config.model.width, config.model.epsilon, kBertNames.norm),
      config_(config),
      dropout_(config.model.dropout, Generator(0)) {
  const LanguageModelConfig& c = config_.model;
  const auto table = [&](const char* name, std::int64_t rows) {
    require_positive(kEncoder, name, rows);
    const Shape shape{rows, c.width};
    return Parameter{name, initial == Initial::none ? Tensor::zeros({1}).expand(shape) : Tensor::zeros(shape), {}};
  };
  words = table(kBertNames.embedding, c.vocab_size);
  positions = table(kBertNames.positions, c.context_length);
  types = table("embeddings.token_type_embeddings.weight", config_.token_types);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const std::string prefix = kBertNames.blocks + std::to_string(i) + ".";
    blocks.push_back(std::make_unique<Block>(c, c.layers[i], lvalue(Generator(0)), prefix));
  }
}

std::vector<Parameter*> Encoder::parameters() {
  std::vector<Parameter*> all{&words, &positions, &types};
  for (Parameter* p : norm.parameters()) all.push_back(p);
  for (const auto& block : blocks) {
    for (Parameter* p : block->parameters()) all.push_back(p);
  }
  return all;
}

// ids (b, t), at places (t) or (b, t); starts: of the texts in the only item → (b, t, width)
Tensor Encoder::hidden(const Tensor& ids, const Tensor& places, const Tensor& starts, Trace* trace) {
  ids_ = ids;
  // hidden = block[n](… block[0](dropout(norm(words[ids] + types[0] + positions))))
  Tensor x = attn::embed(ids, words, 1);
  add_positions(x, types, Tensor::zeros({ids.size(1)}, DType::i64));
  add_positions(x, positions, places);
  x = dropout_.forward(norm.forward(x, DType::f32));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Trace::Scope scope(trace, kBertNames.blocks + std::to_string(i));
    blocks[i]->set_texts(starts);
    x = blocks[i]->forward(x, RotaryTable{}, trace);
  }
  return x;
}

Tensor Encoder::forward(const Tensor& ids, Trace* trace) {
  check_ids(ids, config_.model.vocab_size, config_.model.context_length);
  const Tensor y = hidden(batched(ids), {}, {}, trace);
  return ids.rank() == 1 ? y.select(0, 0) : y;
}

Tensor Encoder::forward(const Tensor& ids, const ForwardOptions& options) {
  return editing::forward(*this, config_.model, ids, options);
}

Module::Gradient Encoder::backward(const Tensor& d_hidden) {
  require_forward(kEncoder, ids_.defined());
  Tensor dx = d_hidden.rank() == 2 ? d_hidden.unsqueeze(0) : d_hidden;
  for (std::size_t i = blocks.size(); i-- > 0;) dx = blocks[i]->backward(dx).x;
  dx = norm.backward(dropout_.backward(dx).x).x;
  embed_backward(dx, ids_, table_gradient(words), table_gradient(positions));
  embed_backward(dx, Tensor::zeros(ids_.shape(), DType::i64), table_gradient(types), {});  // types[0], on every row
  return {};
}

Tensor Encoder::embed(std::span<const std::vector<std::int64_t>> texts, Pooling pooling, bool normalised) {
  if (texts.empty()) throw Error(Error::Kind::argument, kEncoder, "at least one text", "none");
  std::vector<Tensor> vectors;
  const NoGrad no_grad;
  for (std::size_t first = 0, last = 0; first < texts.size(); first = last) {
    std::size_t tokens = 0;
    while (last < texts.size() && (last == first || tokens + texts[last].size() <= kTokens)) {
      tokens += texts[last++].size();
    }
    embed_together(texts.subspan(first, last - first), pooling, normalised, vectors);
  }
  ids_ = {};
  return stack(vectors);
}

void Encoder::embed_together(std::span<const std::vector<std::int64_t>> texts, Pooling pooling, bool normalised,
                             std::vector<Tensor>& vectors) {
  const LanguageModelConfig& c = config_.model;
  std::vector<std::int64_t> all, places, starts{0};
  for (const auto& text : texts) {
    if (text.empty()) throw Error(Error::Kind::argument, kEncoder, "texts of at least one token", "an empty one");
    check_ids(Tensor::from(std::span(text), {static_cast<std::int64_t>(text.size())}), c.vocab_size, c.context_length);
    for (std::size_t i = 0; i < text.size(); ++i) places.push_back(static_cast<std::int64_t>(i));
    all.insert(all.end(), text.begin(), text.end());
    starts.push_back(static_cast<std::int64_t>(all.size()));
  }
  const auto vector = [](const std::vector<std::int64_t>& v, const Shape& shape) {
    return Tensor::from(std::span(v), shape);
  };
  const auto tokens = static_cast<std::int64_t>(all.size());
  const Tensor y = hidden(vector(all, {1, tokens}), vector(places, {tokens}),
                          vector(starts, {static_cast<std::int64_t>(starts.size())}), nullptr);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    vectors.push_back(pool(y.select(0, 0).slice(0, starts[i], starts[i + 1]), pooling, normalised));
  }
}

void Encoder::train(bool on) {
  Module::train(on);
  dropout_.train(on);
  for (const auto& block : blocks) block->train(on);
}

}  // namespace attn
