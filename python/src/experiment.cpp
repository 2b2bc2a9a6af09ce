// Experiments on a language model that is read from its files.
#include "attn/experiment.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "bind.hpp"
#include "text_encoder.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "experiment";

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw Error(Error::Kind::argument, kOp, expected, found);
}

By by_named(const std::string& name) {
  if (name == "zero") return By::zero;
  if (name == "mean") return By::mean;
  if (name == "uniform") return By::uniform;
  refuse("by \"zero\", \"mean\", \"uniform\" or \"text\"", "\"" + name + "\"");
}

Weights weights_named(const std::string& name) {
  if (name == "uniform") return Weights::uniform;
  if (name == "previous") return Weights::previous;
  if (name == "none") return Weights::none;
  refuse("weights \"uniform\", \"previous\" or \"none\"", "\"" + name + "\"");
}

Tensor copied(nb::handle array) { return read(array, kOp, "contexts").tensor.clone(); }
Contexts copied_all(nb::handle arrays) {
  Contexts all;
  for (const nb::handle array : nb::iter(arrays)) all.push_back(copied(array));
  return all;
}

// Each edit is a tuple: its kind, and what that takes.
void add_edit(Edits& edits, const nb::tuple& edit, const LanguageModelConfig& config) {
  const auto kind = nb::cast<std::string>(edit[0]);
  const auto number = [&](std::size_t i) { return plain<std::int64_t>(edit[i], kOp, "a layer, a head or a token"); };
  const auto text = [&](std::size_t i) { return plain<std::string>(edit[i], kOp, "a name"); };
  const auto factor = [&](std::size_t i) { return plain<double>(edit[i], kOp, "a factor"); };
  const auto at = [&] { return HeadAt{number(1), number(2)}; };
  if (kind == "without") return edits.push_back(without(at(), by_named(text(3))));
  if (kind == "without layer") return edits.push_back(without_heads_of(number(1), by_named(text(2))));
  if (kind == "without to") return edits.push_back(without(at(), copied(edit[3])));
  if (kind == "without layer to") return edits.push_back(without_heads_of(number(1), copied(edit[2])));
  if (kind == "scale") return edits.push_back(scale(at(), factor(3)));
  if (kind == "weights") return edits.push_back(reweigh(at(), weights_named(text(3))));
  if (kind == "skip") return edits.push_back(skip_layer(number(1)));
  if (kind == "skip attention") return edits.push_back(skip_attention(number(1)));
  if (kind == "skip mlp") return edits.push_back(skip_feed_forward(number(1)));
  if (kind == "step") {
    const std::optional<std::int64_t> head = optional_plain<std::int64_t>(edit[3], kOp, "head");
    return edits.push_back(scale_step(text(1), factor(2), head));
  }
  if (kind == "replace") {
    const std::optional<std::int64_t> head = optional_plain<std::int64_t>(edit[3], kOp, "head");
    return edits.push_back(replace_step(text(1), read(edit[2], kOp, "a step's value").tensor.clone(), head));
  }
  if (kind == "hide" && edit.size() == 4) return edits.push_back(hide(HeadAt{number(2), number(3)}, number(1), config));
  if (kind == "hide" && edit.size() == 3) return edits.push_back(hide(number(2), number(1), config));
  if (kind == "hide") {
    for (Edit& one : hide(number(1), config)) edits.push_back(std::move(one));
    return;
  }
  std::vector<HeadAt> kept;  // "keep": by, or contexts, then pairs
  for (std::size_t i = 2; i < edit.size(); ++i) {
    const auto pair = plain<Ids>(edit[i], kOp, "a head (layer, head)");
    if (pair.size() != 2) refuse("heads (layer, head)", std::to_string(pair.size()) + " numbers");
    kept.push_back({pair[0], pair[1]});
  }
  Edits others =
      kind == "keep to" ? keep_only(kept, config, copied_all(edit[1])) : keep_only(kept, config, by_named(text(1)));
  for (Edit& one : others) edits.push_back(std::move(one));
}

Edits edits_of(const nb::list& list, const LanguageModelConfig& config) {
  Edits edits;
  for (const nb::handle edit : list) add_edit(edits, nb::cast<nb::tuple>(edit), config);
  return edits;
}

const LanguageModelConfig& config_of(const LanguageModel& model) { return model.config(); }
const LanguageModelConfig& config_of(const Encoder& encoder) { return encoder.config().model; }

// An experiment tells what follows from the logits, or what is inside, where an edit shows though nothing comes of it.
enum class Told { outcome, inside };

// work(model, ids, edits), on one thread at a time.
template <class Subject, class Work>
auto run(Subject& subject, const Ids& ids, const nb::list& list, const Work& work, Told told = Told::outcome) {
  const Edits edits = edits_of(list, config_of(subject.model));
  if (told == Told::outcome) refuse_overwritten(edits, config_of(subject.model));
  return without_gil([&] {
    const std::lock_guard lock(subject.mutex);
    return work(subject.model, tensor_of(ids), edits);
  });
}

nb::object numpy(const Tensor& tensor) { return give(tensor, Framework::numpy); }

nb::object logits(TextModel& s, const Ids& ids, const nb::list& edits) {
  return numpy(run(s, ids, edits, [](auto& model, const Tensor& text, const Edits& some) {
    return model.forward(text, {.edits = some});
  }));
}
nb::object losses(TextModel& s, const Ids& ids, const nb::list& edits) {
  return numpy(run(s, ids, edits, [](LanguageModel& model, const Tensor& text, const Edits& some) {
    return token_losses(model.forward(text, {.edits = some}), text);
  }));
}
template <class Subject>
nb::dict steps(Subject& s, const Ids& ids, const nb::list& edits) {
  const Trace trace = run(
      s, ids, edits,
      [](auto& model, const Tensor& text, const Edits& some) {
        Trace all;
        model.forward(text, {.edits = some, .trace = &all});
        return all;
      },
      Told::inside);
  nb::dict all;
  for (const auto& [name, value] : trace.steps()) all[name.c_str()] = numpy(value.select(0, 0));
  return all;
}
template <class Subject>
nb::object changes(Subject& s, const Ids& ids, const nb::list& edits) {
  return numpy(run(
      s, ids, edits, [](auto&&... all) { return head_changes(all...); }, Told::inside));
}
nb::tuple effects(TextModel& s, const Ids& ids, const nb::list& edits, const std::string& by, const Ids& pair,
                  nb::handle exact, nb::handle contexts) {
  EffectOptions options{.by = by_named(by)};
  if (!contexts.is_none()) options.contexts = copied_all(contexts);
  options.exact = optional_plain<std::int64_t>(exact, kOp, "exact, a number of heads");
  if (!pair.empty()) options.tokens = TokenPair{pair.at(0), pair.at(1)};
  const Effects found = run(s, ids, edits, [&](LanguageModel& model, const Tensor& text, const Edits& some) {
    options.edits = some;
    return head_effects(model, text, options);
  });
  const bool estimated = found.estimates.defined();
  return nb::make_tuple(found.before, numpy(found.after), estimated ? numpy(found.estimates) : nb::none(), found.error);
}
// Returns, by layer, the means over texts (heads, head_dim), or of one text what its heads give (heads, t, head_dim).
template <class Subject>
nb::list contexts(Subject& s, const std::vector<Ids>& texts, bool mean) {
  std::vector<Tensor> all;
  for (const Ids& ids : texts) all.push_back(tensor_of(ids));
  nb::list arrays;
  const Contexts found = run(s, {}, nb::list(), [&](auto& model, const Tensor&, const Edits&) {
    return mean ? mean_contexts(model, all) : text_contexts(model, all.at(0));
  });
  for (const Tensor& layer : found) arrays.append(numpy(layer));
  return arrays;
}
nb::dict compared(TextModel& s, TextModel& other, const Ids& ids, const nb::list& list) {
  const Edits edits = edits_of(list, s.model.config());
  const Comparison found = without_gil([&] {
    std::unique_lock own(s.mutex, std::defer_lock), second(other.mutex, std::defer_lock);
    if (&s == &other) {  // one mutex cannot be locked twice
      own.lock();
    } else {
      std::lock(own, second);
    }
    return compare(s.model, other.model, tensor_of(ids), edits);
  });
  nb::dict all;
  all["losses"] = numpy(found.losses), all["other_losses"] = numpy(found.other_losses);
  all["next"] = numpy(found.next), all["other_next"] = numpy(found.other_next), all["heads"] = numpy(found.heads);
  return all;
}
// (id, text, other text) of the first token that two models' own tokenizers have otherwise; None where all are the
// same.
nb::object first_other_token(TextModel& s, TextModel& other) {
  std::int64_t id = 0;
  std::string mine, its;
  const bool same = without_gil([&] {
    const Tokenizer &a = s.tokenizer(), &b = other.tokenizer();
    for (const std::int64_t count = std::max(a.vocab_size(), b.vocab_size()); id < count; ++id) {
      mine = id < a.vocab_size() ? a.decode(id) : "";
      its = id < b.vocab_size() ? b.decode(id) : "";
      if (mine != its) return false;
    }
    return true;
  });
  return same ? nb::object(nb::none()) : nb::make_tuple(id, python_text(mine), python_text(its));
}
nb::tuple lens(TextModel& s, const Ids& ids, const nb::list& edits) {
  const Lens found = run(s, ids, edits, [](auto&&... all) { return logit_lens(all...); });
  return nb::make_tuple(numpy(found.tokens), numpy(found.probability),
                        found.losses.defined() ? numpy(found.losses) : nb::none());
}
nb::dict attribute(TextModel& s, const Ids& ids, const nb::list& edits, std::int64_t a, nb::handle b, nb::handle at) {
  const auto second = optional_plain<std::int64_t>(b, kOp, "b");
  const auto position = optional_plain<std::int64_t>(at, kOp, "position");
  const Attribution found = run(s, ids, edits, [&](LanguageModel& model, const Tensor& text, const Edits& some) {
    return attribution(model, text, a, second, position, some);
  });
  nb::dict all;
  all["heads"] = numpy(found.heads), all["biases"] = numpy(found.biases);
  all["feed_forwards"] = numpy(found.feed_forwards), all["embedding"] = found.embedding, all["bias"] = found.bias;
  all["sum"] = found.sum, all["logit"] = found.logit;
  return all;
}
template <class Subject>
nb::object roll_out(Subject& s, const Ids& ids, const nb::list& edits) {
  return numpy(run(
      s, ids, edits, [](auto&&... all) { return rollout(all...); }, Told::inside));
}
nb::tuple scores(TextModel& s, const Ids& twice, const nb::list& edits) {
  const HeadScores found = run(
      s, twice, edits, [](auto&&... all) { return head_scores(all...); }, Told::inside);
  return nb::make_tuple(numpy(found.previous), numpy(found.duplicate), numpy(found.induction));
}
nb::tuple patch(TextModel& s, const Ids& clean, const nb::list& edits, const Ids& corrupt, std::int64_t a,
                std::int64_t b) {
  const Patching found = run(s, clean, edits, [&](LanguageModel& model, const Tensor& text, const Edits& some) {
    return patching(model, text, tensor_of(corrupt), {a, b}, some);
  });
  return nb::make_tuple(found.clean, found.corrupt, numpy(found.stream), numpy(found.heads));
}

// An encoder has these, too; logits it has not.
template <class Subject>
void bind_shared(nb::class_<Subject>& subject) {
  subject.def("steps", &steps<Subject>)
      .def("changes", &changes<Subject>)
      .def("contexts", &contexts<Subject>)
      .def("rollout", &roll_out<Subject>);
}

}  // namespace

void bind_experiments(nb::class_<TextEncoder>& encoder) {
  bind_shared(encoder);
  encoder.def("decode",
              [](TextEncoder& s, const Ids& ids, bool) { return python_text(s.tokenizer().decode(std::span(ids))); });
}

void bind_experiments(nb::class_<TextModel>& model) {
  bind_shared(model);
  model.def("logits", &logits)
      .def("losses", &losses)
      .def("effects", &effects, nb::arg("ids"), nb::arg("edits"), nb::arg("by"), nb::arg("pair"),
           nb::arg("exact").none(), nb::arg("contexts").none())
      .def("compared", &compared)
      .def("first_other_token", &first_other_token)
      .def("lens", &lens)
      .def("attribution", &attribute, nb::arg("ids"), nb::arg("edits"), nb::arg("a"), nb::arg("b").none(),
           nb::arg("position").none())
      .def("scores", &scores)
      .def("patching", &patch);
}

}  // namespace attn::python
