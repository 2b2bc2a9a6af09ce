// One pass with edits, what its heads give on average, and how much they differ from those of another pass.
#include <cmath>

#include "attn/error.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"

namespace attn {
namespace {

using editing::Editor;

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

// Returns what each layer's heads give, and sets `output` to what the model gives, where that is asked for.
template <class Model>
editing::Kept contexts_of(Model& model, const LanguageModelConfig& c, const Tensor& ids, const Edits& edits,
                          Tensor* output = nullptr) {
  Editor editor(edits, c);
  std::set<std::string> names;
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    names.insert(editing::step_name(c, Edit::Of::attention, l, "context"));
  }
  editor.keep(names);
  const Tensor y = model.forward(experiment::one_text(ids), editor.trace());
  editor.check();
  if (output) *output = y.select(0, 0);
  return editor.take();
}

// (1, heads, t, head_dim) of a layer.
Tensor head_view(const editing::Kept& kept, const LanguageModelConfig& c, std::int64_t layer) {
  const Tensor& z = kept.find(editing::step_name(c, Edit::Of::attention, layer, "context"))->second;
  return z.rank() == 4 ? z : z.unsqueeze(1);
}

Tensor changes_between(const editing::Kept& before, const LanguageModelConfig& c, const editing::Kept& after,
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

// Returns what each layer's heads give: (heads, t, head_dim).
template <class Model>
Contexts all_contexts(Model& model, const LanguageModelConfig& c, const Tensor& ids) {
  const editing::Kept kept = contexts_of(model, c, ids, {});
  Contexts all;
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) all.push_back(head_view(kept, c, l).select(0, 0));
  return all;
}

template <class Model>
Contexts means_over(Model& model, const LanguageModelConfig& c, std::span<const Tensor> texts) {
  if (texts.empty()) throw Error(Error::Kind::argument, experiment::kOp, "a text or more, for means", "none");
  Contexts sums;
  double tokens = 0;
  for (const Tensor& text : texts) tokens += static_cast<double>(text.numel());
  for (const Tensor& text : texts) {
    const Contexts all = all_contexts(model, c, text);
    const double share = static_cast<double>(text.numel()) / tokens;
    for (std::size_t l = 0; l < all.size(); ++l) {
      const Tensor means = experiment::mean_rows(all[l]);  // (heads, 1, head_dim)
      if (sums.size() == l) sums.push_back(Tensor::zeros({means.size(0), means.size(2)}, DType::f64));
      for (std::int64_t i = 0; i < means.numel(); ++i) {
        sums[l].data<double>()[i] += share * static_cast<double>(means.data<float>()[i]);
      }
    }
  }
  for (Tensor& sum : sums) sum = sum.to(DType::f32);
  return sums;
}

template <class Model>
Tensor changes_by(Model& model, const LanguageModelConfig& c, const Tensor& ids, const Edits& edits) {
  return changes_between(contexts_of(model, c, ids, {}), c, contexts_of(model, c, ids, edits), c);
}

// "4 layers of 3 heads, each of 32 numbers, and 256 tokens"
std::string sizes_of(const LanguageModelConfig& c) {
  return experiment::heads_in_words(c) + ", each of " + std::to_string(c.head_dim) + " numbers, and " +
         std::to_string(c.vocab_size) + " tokens";
}

}  // namespace

Contexts mean_contexts(LanguageModel& model, std::span<const Tensor> texts) {
  return means_over(model, model.config(), texts);
}
Contexts mean_contexts(Encoder& encoder, std::span<const Tensor> texts) {
  return means_over(encoder, encoder.config().model, texts);
}

Contexts text_contexts(LanguageModel& model, const Tensor& ids) { return all_contexts(model, model.config(), ids); }
Contexts text_contexts(Encoder& encoder, const Tensor& ids) {
  return all_contexts(encoder, encoder.config().model, ids);
}

Tensor head_changes(LanguageModel& model, const Tensor& ids, const Edits& edits) {
  return changes_by(model, model.config(), ids, edits);
}
Tensor head_changes(Encoder& encoder, const Tensor& ids, const Edits& edits) {
  return changes_by(encoder, encoder.config().model, ids, edits);
}

Comparison compare(LanguageModel& model, LanguageModel& other, const Tensor& ids, const Edits& edits) {
  const LanguageModelConfig &a = model.config(), &b = other.config();
  if (sizes_of(a) != sizes_of(b)) {
    throw Error(Error::Kind::argument, "compare", "two models of " + sizes_of(a), "one of " + sizes_of(b));
  }
  Tensor logits, other_logits;
  const editing::Kept heads = contexts_of(model, a, ids, edits, &logits);
  const editing::Kept other_heads = contexts_of(other, b, ids, edits, &other_logits);
  const std::int64_t last = ids.numel() - 1;
  return {.losses = token_losses(logits, ids),
          .other_losses = token_losses(other_logits, ids),
          .next = log_probabilities(logits.select(0, last)),
          .other_next = log_probabilities(other_logits.select(0, last)),
          .heads = changes_between(heads, a, other_heads, b)};
}

}  // namespace attn
