// Text that a language model writes, a step at a time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "bind.hpp"
#include "text/answer.hpp"
#include "text_model.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "generate";

// Reads generate()'s arguments by name; what is not given has the command's defaults.
GenerateOptions options_of(const nb::dict& given) {
  GenerateOptions options;
  const auto take = [&]<class T>(T& to, const char* name) {
    if (given.contains(name)) to = plain<T>(given[name], kOp, name);
  };
  take(options.tokens, "new_tokens"), take(options.sampling.temperature, "temperature");
  take(options.sampling.top_k, "top_k"), take(options.sampling.top_p, "top_p");
  take(options.sampling.min_p, "min_p"), take(options.sampling.repetition_penalty, "repetition_penalty");
  take(options.stops, "stop");
  if (given.contains("cache")) {
    const auto name = plain<std::string>(given["cache"], kOp, "cache");
    const auto dtype = dtype_named(name);
    if (!dtype) {
      throw Error(Error::Kind::argument, kOp, "cache \"float32\", \"bfloat16\", \"float16\" or \"int8\"",
                  "\"" + name + "\"");
    }
    options.cache = *dtype;
  }
  return options;
}

void require_stops(const Ids& stops, std::int64_t vocab_size) {
  for (const std::int64_t id : stops) {
    if (id >= 0 && id < vocab_size) continue;
    throw Error(Error::Kind::argument, kOp, "stop ids from 0 to " + std::to_string(vocab_size - 1), std::to_string(id));
  }
}

// One text. The model may be used between its steps.
class Writing {
 public:
  // `kind`: what the prompt is of: "text", "messages", or "ids", which need no tokenizer.
  Writing(std::shared_ptr<TextModel> model, const Ids& prompt, const std::string& kind, GenerateOptions options,
          std::uint64_t seed, std::vector<std::string> stop_texts)
      : model_(std::move(model)), stop_texts_(std::move(stop_texts)) {
    const LanguageModelConfig& c = model_->model.config();
    require_stops(options.stops, c.vocab_size);
    options.stops.insert(options.stops.end(), c.end_ids.begin(), c.end_ids.end());
    const Tokenizer* const tokenizer = kind == "ids" ? nullptr : &model_->tokenizer();
    const Ids ends = tokenizer ? stop_ids(*tokenizer, kind == "messages") : Ids{};
    options.stops.insert(options.stops.end(), ends.begin(), ends.end());
    answer_.emplace(tokenizer, stop_texts_);
    const std::lock_guard lock(model_->mutex);
    generation_.emplace(model_->model, std::span(&prompt, 1), options, seed);
  }

  // Whether there is more to come.
  bool step() {
    const std::lock_guard lock(mutex_);
    if (!finish_.empty()) return false;
    const std::lock_guard model_lock(model_->mutex);
    const bool more = generation_->step([&](std::size_t, std::int64_t id) {
      ids_.push_back(id);
      piece_ += characters_.push(answer_->push(id));
      return !answer_->stopped();
    });
    if (more) return true;
    piece_ += characters_.push(answer_->finish()) + characters_.finish();
    finish_ = answer_->stopped() ? "stop-text" : generation_->texts()[0].stopped ? "stop" : "length";
    return false;
  }

  // Returns what has come since it was last asked.
  nb::tuple taken() {
    const std::lock_guard lock(mutex_);
    const nb::tuple all = nb::make_tuple(python_text(piece_), ids_, finish_);
    piece_.clear(), ids_.clear();
    return all;
  }

 private:
  std::shared_ptr<TextModel> model_;
  std::vector<std::string> stop_texts_;
  std::optional<Answer> answer_;
  std::optional<Generation> generation_;
  Utf8Stream characters_;
  std::string piece_, finish_;
  Ids ids_;
  std::mutex mutex_;
};

std::shared_ptr<Writing> write(const std::shared_ptr<TextModel>& model, const Ids& prompt, const std::string& kind,
                               const nb::dict& given, nb::handle seed, nb::handle stop_texts) {
  const GenerateOptions options = options_of(given);
  const auto drawn_by = plain<std::uint64_t>(seed, kOp, "seed");
  std::vector<std::string> texts;
  for (const nb::handle text : nb::iter(stop_texts)) texts.push_back(text_in(text, kOp));
  return without_gil([&] { return std::make_shared<Writing>(model, prompt, kind, options, drawn_by, texts); });
}

// ids; of an empty text the end of a text before, or a new line
Ids ids_of_prompt(TextModel& model, nb::handle text) {
  const std::string bytes = text_in(text, kOp);
  return without_gil([&] { return prompt_ids(model.tokenizer(), bytes); });
}

}  // namespace

void bind_generation(nb::module_& m) {
  nb::class_<Writing>(m, "Writing", "A text that is being written.")
      .def("step", [](Writing& self) { return without_gil([&] { return self.step(); }); })
      .def("taken", &Writing::taken);
  m.def("write", &write, nb::arg("model"), nb::arg("prompt"), nb::arg("kind"), nb::arg("given"), nb::arg("seed").none(),
        nb::arg("stop_texts").none());
  m.def("prompt_ids", &ids_of_prompt, nb::arg("model"), nb::arg("text"));
}

}  // namespace attn::python
