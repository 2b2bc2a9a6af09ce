// One pass with edits, and how much each head differs from the pass without.
#include <cmath>

#include "attn/error.hpp"
#include "experiment/editor.hpp"

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

}  // namespace

Tensor edited_forward(LanguageModel& model, const Tensor& ids, const Edits& edits, Trace* steps) {
  return edited(model, model.config(), ids, edits, steps);
}

Tensor edited_forward(Encoder& encoder, const Tensor& ids, const Edits& edits, Trace* steps) {
  return edited(encoder, encoder.config().model, ids, edits, steps);
}

Tensor head_changes(LanguageModel& model, const Tensor& ids, const Edits& edits) {
  const LanguageModelConfig& c = model.config();
  const auto layers = static_cast<std::int64_t>(c.layers.size());
  std::vector<std::string> names;
  for (std::int64_t l = 0; l < layers; ++l)
    names.push_back(experiment::step_name(c, Edit::Of::attention, l, "context"));
  const auto contexts = [&](const Edits& some) {
    Editor editor(some, c);
    editor.keep({names.begin(), names.end()});
    model.forward(experiment::one_text(ids), editor.trace());
    editor.check();
    return editor.take();
  };
  const experiment::Kept before = contexts({}), after = contexts(edits);
  Tensor changes = Tensor::empty({layers, c.heads}, DType::f64);
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto view = [&](const experiment::Kept& kept) {
      const Tensor& z = kept.find(names[static_cast<std::size_t>(l)])->second;
      return z.rank() == 4 ? z : z.unsqueeze(1);
    };
    for (std::int64_t h = 0; h < c.heads; ++h) {
      changes.set({l, h}, change(view(before).select(1, h), view(after).select(1, h)));
    }
  }
  return changes;
}

}  // namespace attn
