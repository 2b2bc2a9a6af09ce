// One pass with edits, what its heads give on average, and how much they differ from those of another pass.
#include <cmath>

#include "attn/error.hpp"
#include "experiment/editor.hpp"
#include "experiment/measures.hpp"

namespace attn {
namespace {

using experiment::Editor;

template <class Model>
Tensor edited(Model& model, const LanguageModelConfig& config, const Tensor& ids, const Edits& edits, Trace* steps) {
  Editor editor(edits, config, steps);
  const Tensor y = model.forward(experiment::one_text(ids), editor.trace());
  editor.check();
  return y.select(0, 0);
}

// |z' - z| / |z|
double change(const Tensor& z, const Tensor& edited) {
  const Tensor a = z.contiguous(), b = edited.contiguous();
  double difference = 0, whole = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto x = static_cast<double>(a.data<float>()[i]);
    const double d = static_cast<double>(b.data<float>()[i]) - x;
    difference += d * d, whole += x * x;
  }
  return whole == 0 ? (difference == 0 ? 0 : HUGE_VAL) : std::sqrt(difference / whole);
}

// What each layer's heads give, and the logits (t, vocab_size), where they are asked for.
experiment::Kept contexts_of(LanguageModel& model, const Tensor& ids, const Edits& edits, Tensor* logits = nullptr) {
  const LanguageModelConfig& c = model.config();
  Editor editor(edits, c);
  std::set<std::string> names;
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    names.insert(experiment::step_name(c, Edit::Of::attention, l, "context"));
  }
  editor.keep(names);
  const Tensor y = model.forward(experiment::one_text(ids), editor.trace());
  editor.check();
  if (logits) *logits = y.select(0, 0);
  return editor.take();
}

// (1, heads, t, head_dim) of a layer.
Tensor head_view(const experiment::Kept& kept, const LanguageModelConfig& c, std::int64_t layer) {
  const Tensor& z = kept.find(experiment::step_name(c, Edit::Of::attention, layer, "context"))->second;
  return z.rank() == 4 ? z : z.unsqueeze(1);
}

Tensor changes_between(const experiment::Kept& before, const LanguageModelConfig& c, const experiment::Kept& after,
                       const LanguageModelConfig& other) {
  const auto layers = std::ssize(c.layers);
  Tensor changes = experiment::table_of_heads(c);
  for (std::int64_t l = 0; l < layers; ++l) {
    const Tensor a = head_view(before, c, l), b = head_view(after, other, l);
    if (!(a.shape() == b.shape())) {  // as of layers that mix otherwise
      throw Error(Error::Kind::shape, "compare", "heads " + a.shape().str() + " in layer " + std::to_string(l),
                  b.shape().str());
    }
    for (std::int64_t h = 0; h < c.heads_of(l); ++h) changes.set({l, h}, change(a.select(1, h), b.select(1, h)));
  }
  return changes;
}

// "4 layers of 3 heads, each of 32 numbers, and 256 tokens"
std::string sizes_of(const LanguageModelConfig& c) {
  return experiment::heads_in_words(c) + ", each of " + std::to_string(c.head_dim) + " numbers, and " +
         std::to_string(c.vocab_size) + " tokens";
}

}  // namespace

Tensor edited_forward(LanguageModel& model, const Tensor& ids, const Edits& edits, Trace* steps) {
  return edited(model, model.config(), ids, edits, steps);
}

Tensor edited_forward(Encoder& encoder, const Tensor& ids, const Edits& edits, Trace* steps) {
  return edited(encoder, encoder.config().model, ids, edits, steps);
}

Tensor mean_contexts(LanguageModel& model, std::span<const Tensor> texts) {
  const LanguageModelConfig& c = model.config();
  if (texts.empty()) throw Error(Error::Kind::argument, experiment::kOp, "a text or more, for means", "none");
  Tensor means = Tensor::zeros({std::ssize(c.layers), c.most_heads(), c.head_dim}, DType::f64);
  double tokens = 0;
  for (const Tensor& text : texts) tokens += static_cast<double>(text.numel());
  for (const Tensor& text : texts) {
    const double share = static_cast<double>(text.numel()) / tokens;
    const experiment::Kept contexts = contexts_of(model, text, {});
    for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
      const Tensor z = head_view(contexts, c, l);  // (1, heads, t, head_dim)
      if (z.size(3) != c.head_dim) {
        throw Error(Error::Kind::argument, experiment::kOp, "heads of one head_dim in all layers, for means",
                    std::to_string(c.head_dim) + " and " + std::to_string(z.size(3)));
      }
      for (std::int64_t h = 0; h < c.heads_of(l); ++h) {
        const Tensor mean = experiment::mean_rows(z.select(1, h));
        for (std::int64_t j = 0; j < c.head_dim; ++j) {
          means.set({l, h, j}, means.at({l, h, j}) + share * mean.at({0, 0, j}));
        }
      }
    }
  }
  return means.to(DType::f32);
}

Tensor head_changes(LanguageModel& model, const Tensor& ids, const Edits& edits) {
  const LanguageModelConfig& c = model.config();
  return changes_between(contexts_of(model, ids, {}), c, contexts_of(model, ids, edits), c);
}

Comparison compare(LanguageModel& model, LanguageModel& other, const Tensor& ids, const Edits& edits) {
  const LanguageModelConfig &a = model.config(), &b = other.config();
  if (sizes_of(a) != sizes_of(b)) {
    throw Error(Error::Kind::argument, "compare", "two models of " + sizes_of(a), "one of " + sizes_of(b));
  }
  Tensor logits, other_logits;
  const experiment::Kept heads = contexts_of(model, ids, edits, &logits);
  const experiment::Kept other_heads = contexts_of(other, ids, edits, &other_logits);
  const std::int64_t last = ids.numel() - 1;
  return {.losses = token_losses(logits, ids),
          .other_losses = token_losses(other_logits, ids),
          .next = log_probabilities(logits.select(0, last)),
          .other_next = log_probabilities(other_logits.select(0, last)),
          .heads = changes_between(heads, a, other_heads, b)};
}

}  // namespace attn
