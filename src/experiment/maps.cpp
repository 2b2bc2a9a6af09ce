// Weights of all layers: rollout, and TransformerLens's scores.
#include <algorithm>
#include <set>
#include <utility>

#include "attn/error.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"

namespace attn {
namespace {

using editing::Editor;

using Of = Edit::Of;

// These steps of every layer in one edited pass, by their whole names.
template <class Model>
editing::Kept steps_of(Model& model, const LanguageModelConfig& c, const Tensor& ids, const Edits& edits,
                       std::initializer_list<std::pair<Of, const char*>> steps) {
  Editor editor(edits, c);
  std::set<std::string> names;
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    for (const auto& [of, step] : steps) names.insert(editing::step_name(c, of, l, step));
  }
  editor.keep(names);
  model.forward(experiment::one_text(ids), editor.trace());
  editor.check();
  return editor.take();
}

// A layer's (heads, t, t).
Tensor weights_of(const editing::Kept& kept, const LanguageModelConfig& c, std::int64_t layer) {
  const Tensor& w = kept.at(editing::step_name(c, Of::attention, layer, "weights"));
  return w.rank() == 4 ? w.select(0, 0) : w;
}

bool same_numbers(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return std::equal(x.data<float>(), x.data<float>() + x.numel(), y.data<float>());
}

// False where a layer, or its attention, is skipped: then nothing comes from other tokens, whatever its weights are.
bool mixes(const editing::Kept& kept, const LanguageModelConfig& c, std::int64_t layer) {
  const auto step = [&](Of of, const char* name) { return kept.at(editing::step_name(c, of, layer, name)); };
  const Tensor added = step(Of::attention, "added");
  return !same_numbers(added, Tensor::zeros(added.shape())) &&
         !same_numbers(step(Of::block, "output"), step(Of::block, "inputs"));
}

// (A + I) / 2, A the mean over heads; rows divided by their sums.
std::vector<double> mixed(const Tensor& weights) {
  const std::int64_t heads = weights.size(0), t = weights.size(1);
  const Tensor all = weights.contiguous();
  std::vector<double> mean(static_cast<std::size_t>(t * t));
  for (std::int64_t h = 0; h < heads; ++h) {
    const float* w = all.data<float>() + h * t * t;
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(w[i]) / static_cast<double>(heads) / 2;
  }
  for (std::int64_t i = 0; i < t; ++i) {
    double* row = mean.data() + i * t;
    row[i] += 0.5;
    double sum = 0;
    for (std::int64_t j = 0; j < t; ++j) sum += row[j];
    for (std::int64_t j = 0; j < t; ++j) row[j] /= sum;
  }
  return mean;
}

template <class Model>
Tensor rolled_out(Model& model, const LanguageModelConfig& c, const Tensor& ids, const Edits& edits) {
  const editing::Kept kept =
      steps_of(model, c, ids, edits,
               {{Of::attention, "weights"}, {Of::attention, "added"}, {Of::block, "inputs"}, {Of::block, "output"}});
  const std::int64_t layers = std::ssize(c.layers), t = ids.numel();
  const Tensor all = Tensor::zeros({layers, t, t}, DType::f64);
  for (std::int64_t l = 0; l < layers; ++l) {
    const Tensor weights = weights_of(kept, c, l);
    const std::vector<double> a = mixed(mixes(kept, c, l) ? weights : Tensor::zeros(weights.shape()));
    double* out = all.data<double>() + l * t * t;
    const double* before = out - t * t;
    for (std::int64_t i = 0; i < t; ++i) {
      for (std::int64_t k = 0; k < t; ++k) {
        const double factor = a[static_cast<std::size_t>(i * t + k)];
        if (l == 0) out[i * t + k] = factor;
        for (std::int64_t j = 0; l > 0 && j < t; ++j) out[i * t + j] += factor * before[k * t + j];
      }
    }
  }
  return all;
}

double diagonal_mean(const Tensor& weights, std::int64_t offset) {
  double sum = 0;
  for (std::int64_t i = offset; i < weights.size(0); ++i) sum += weights.at({i, i - offset});
  return sum / static_cast<double>(weights.size(0) - offset);
}

}  // namespace

Tensor rollout(LanguageModel& model, const Tensor& ids, const Edits& edits) {
  return rolled_out(model, model.config(), ids, edits);
}
Tensor rollout(Encoder& encoder, const Tensor& ids, const Edits& edits) {
  return rolled_out(encoder, encoder.config().model, ids, edits);
}

HeadScores head_scores(LanguageModel& model, const Tensor& twice, const Edits& edits) {
  const std::int64_t n = twice.numel() / 2;
  const std::int64_t* ids = twice.data<std::int64_t>();
  if (n < 2 || twice.numel() % 2 != 0 || !std::equal(ids, ids + n, ids + n)) {
    throw Error(Error::Kind::argument, experiment::kOp, "two or more tokens, and the same again", twice.shape().str());
  }
  const LanguageModelConfig& c = model.config();
  const editing::Kept kept = steps_of(model, c, twice, edits, {{Of::attention, "weights"}});
  using experiment::table_of_heads;
  HeadScores scores{table_of_heads(c), table_of_heads(c), table_of_heads(c)};
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    for (std::int64_t h = 0; h < c.heads_of(l); ++h) {
      const Tensor w = weights_of(kept, c, l).select(0, h);
      scores.previous.set({l, h}, diagonal_mean(w, 1));
      scores.duplicate.set({l, h}, diagonal_mean(w, n));
      scores.induction.set({l, h}, diagonal_mean(w, n - 1));
    }
  }
  return scores;
}

}  // namespace attn
