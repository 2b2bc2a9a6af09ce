// Language models in files: logits, losses, text, steps and the page.
#include "attn/language_model.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.hpp"
#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/layers.hpp"
#include "attn/report.hpp"
#include "attn/train.hpp"
#include "bind.hpp"
#include "common/live_model.hpp"
#include "text_model.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "LanguageModel";
constexpr std::int64_t kMostRepeated = 64;  // tokens that are read twice for the heads' names

std::shared_ptr<TextModel> load(const std::string& path, nb::handle weights, nb::handle precision,
                                const std::string& tokenizer) {
  constexpr const char* op = "load";
  const auto named = optional_plain<std::string>(weights, op, "weights");
  const Precision of_products = parse_precision(plain<std::string>(precision, op, "precision"));
  std::optional<DType> dtype = named ? dtype_named(*named) : usual_weights(path);
  if (named && !dtype && *named != "file") {
    throw Error(Error::Kind::argument, op, "weights \"file\", \"float32\", \"bfloat16\" or \"int8\"",
                "\"" + *named + "\"");
  }
  return without_gil([&] { return std::make_shared<TextModel>(path, dtype, of_products, tokenizer); });
}

// work(model), on one thread at a time. Nothing here goes back through a pass.
template <class Work>
auto run(TextModel& self, const Work& work) {
  return without_gil([&] {
    const std::lock_guard lock(self.mutex);
    const NoGrad no_grad;
    return work(self.model);
  });
}

Ids encode(TextModel& self, nb::handle text, nb::handle special) {
  const std::string bytes = text_in(text, "encode");
  const bool added = plain<bool>(special, "encode", "add_special_tokens");
  return without_gil([&] { return self.tokenizer().encode(bytes, {.add_special_tokens = added}); });
}

nb::str decode(TextModel& self, nb::handle ids, nb::handle skip) {
  const Ids all = plain<Ids>(ids, "decode", "ids");
  const bool skips = plain<bool>(skip, "decode", "skip_special_tokens");
  const auto decoded = [&] { return self.tokenizer().decode(std::span(all), {.skip_special_tokens = skips}); };
  return python_text(without_gil(decoded));
}

nb::object forward(TextModel& self, nb::handle ids, int framework) {
  const auto to = static_cast<Framework>(framework);
  const Array in = read(ids, kOp, "ids", to);
  const DType dtype = in.tensor.dtype();
  const bool narrow = dtype == DType::i32 || dtype == DType::i8 || dtype == DType::u8;  // as an embedding takes them
  const Tensor whole = narrow ? in.tensor.to(DType::i64) : in.tensor;
  return give(run(self, [&](LanguageModel& model) { return model.forward(whole); }), to);
}

// The mean over the tokens after the first.
double loss(TextModel& self, const Ids& ids) {
  if (ids.size() < 2) {
    throw Error(Error::Kind::argument, "loss", "a text of at least two tokens, each but the first predicted",
                std::to_string(ids.size()));
  }
  return run(self, [&](LanguageModel& model) {
    // A pass does not read the last one, and as a target -100 would be left out.
    if (const std::int64_t last = ids.back(); last < 0 || last >= model.config().vocab_size) {
      throw Error(Error::Kind::argument, "loss", "token ids in [0, " + std::to_string(model.config().vocab_size) + ")",
                  std::to_string(last));
    }
    const Tensor all = tensor_of(ids);
    return model.evaluate(all.slice(0, 0, all.size(0) - 1), all.slice(0, 1, all.size(0)));
  });
}

nb::dict steps(TextModel& self, const Ids& ids) {
  Trace trace;
  run(self, [&](LanguageModel& model) { return model.forward(tensor_of(ids), &trace); });
  nb::dict all;
  for (const auto& [name, value] : trace.steps()) all[name.c_str()] = give(value.select(0, 0), Framework::numpy);
  return all;
}

// As `attn report --model` makes it, a layer at a time.
std::string page_of(LanguageModel& model, const Ids& ids, ReportOptions options) {
  const LanguageModelConfig& c = model.config();
  const std::int64_t twice = std::min({kMostRepeated, c.context_length / 2, std::int64_t{std::ssize(ids)}});
  if (twice >= 2) options.repeated_ids.assign(ids.begin(), ids.begin() + twice);
  ReportWriter writer(options, std::ssize(c.layers));
  if (twice >= 2) {
    Ids again = options.repeated_ids;
    again.insert(again.end(), options.repeated_ids.begin(), options.repeated_ids.end());
    read_layers(model, tensor_of(again), {}, [&](std::size_t, const Trace& layer) { writer.add_repeated(layer); });
  }
  read_layers(model, tensor_of(ids), {},
              [&](std::size_t i, const Trace& layer) { writer.add(layer, static_cast<std::int64_t>(i) + 1); });
  return writer.page();
}

nb::str page(TextModel& self, const Ids& ids, nb::handle tokens, nb::handle key_tokens, nb::handle title,
             nb::handle layer, nb::handle head, bool live, bool checkpoints) {
  ReportOptions options = page_options(tokens, key_tokens, title, layer, head);
  return python_text(run(self, [&](LanguageModel& model) {
    if (live) make_live(options, self.path, self.given(), checkpoints), options.live->ids = ids;
    return page_of(model, ids, options);
  }));
}

std::string described(TextModel& self) {
  const LanguageModelConfig& c = self.model.config();
  std::int64_t count = 0;
  for (const Parameter* p : self.model.parameters()) count += p->value.defined() ? p->value.numel() : 0;
  return c.family + ", " + std::to_string(c.layers.size()) + " layers of " + std::to_string(c.heads) + " heads, " +
         std::to_string(count) + " parameters";
}

void bind_config(nb::module_& m) {
  using Config = LanguageModelConfig;
  nb::class_<Config>(m, "LanguageModelConfig", "What a language model is; nothing of it can be changed.")
      .def_ro("family", &Config::family, "The model_type of config.json.")
      .def_ro("vocab_size", &Config::vocab_size)
      .def_ro("context_length", &Config::context_length, "The most tokens of a text.")
      .def_ro("width", &Config::width)
      .def_ro("inner_width", &Config::inner_width, "Of the feed-forward.")
      .def_prop_ro(
          "layers", [](const Config& c) { return c.layers.size(); }, "How many there are.")
      .def_ro("heads", &Config::heads)
      .def_prop_ro(
          "kv_heads", [](const Config& c) { return c.kv_heads == 0 ? c.heads : c.kv_heads; }, "Heads of keys.")
      .def_prop_ro(
          "head_dim", [](const Config& c) { return c.head_dim == 0 ? c.width / c.heads : c.head_dim; },
          "Numbers of a head's query.")
      .def_prop_ro(
          "windows",
          [](const Config& c) {
            Ids windows;
            for (const LayerConfig& layer : c.layers) windows.push_back(layer.window);
            return windows;
          },
          "How many keys a query of each layer sees; 0: all before it.")
      .def_ro("end_ids", &Config::end_ids, "Ids that end a text, as the model's files tell; its tokenizer has more.")
      .def_ro("tied", &Config::tied, "Does the head share the embedding's weight?")
      .def_prop_ro("precision", [](const Config& c) { return std::string(name(c.precision)); })
      .def_ro("json", &Config::json, "The config.json that it was read from; empty of a GGUF file.")
      .def("__repr__", [](const Config& c) {
        return "LanguageModelConfig(family='" + c.family + "', layers=" + std::to_string(c.layers.size()) +
               ", heads=" + std::to_string(c.heads) + ", width=" + std::to_string(c.width) +
               ", vocab_size=" + std::to_string(c.vocab_size) + ")";
      });
}

}  // namespace

ReportOptions page_options(nb::handle tokens, nb::handle key_tokens, nb::handle title, nb::handle layer,
                           nb::handle head) {
  using Texts = std::vector<std::string>;
  constexpr const char* op = "report";
  ReportOptions options;
  options.tokens = plain<Texts>(tokens, op, "tokens"), options.key_tokens = plain<Texts>(key_tokens, op, "key_tokens");
  options.title = plain<std::string>(title, op, "title");
  options.layer = optional_plain<std::int64_t>(layer, op, "layer");
  options.head = optional_plain<std::int64_t>(head, op, "head");
  return options;
}

void make_live(ReportOptions& options, const std::string& path, const std::string& tokenizer, bool checkpoints) {
  options.live = tool::live_model(path, tokenizer, "live=True");
  if (checkpoints) tool::add_kept(path, *options.live, "checkpoints=True");
  if (options.live->in_bytes) options.notes.emplace_back(tool::kInBytes);
}

void bind_language_model(nb::module_& m) {
  bind_config(m);
  nb::class_<TextModel> model(m, "TextModel", "A language model of files with its tokenizer.");
  model.def("config", [](const TextModel& self) { return self.model.config(); })
      .def("described", &described)
      .def("weights", [](const TextModel& self) { return std::string(self.weights ? name(*self.weights) : "file"); })
      .def("forward", &forward, nb::arg("ids"), nb::arg("framework"), "Logits (…, t, vocab_size).")
      .def("loss", &loss, nb::arg("ids"))
      .def("trace", &steps, nb::arg("ids"), "Every step of a pass, by name.")
      .def("page", &page, nb::arg("ids"), nb::arg("tokens"), nb::arg("key_tokens"), nb::arg("title"),
           nb::arg("layer").none(), nb::arg("head").none(), nb::arg("live"), nb::arg("checkpoints"))
      .def("encode", &encode, nb::arg("text").none(), nb::arg("special").none(), "The ids of a text.")
      .def("decode", &decode, nb::arg("ids").none(), nb::arg("skip_special").none(), "The text of ids.")
      .def("read_tokenizer", [](TextModel& self) { without_gil([&] { self.tokenizer(); }); })
      .def("token_count", [](TextModel& self) { return self.tokenizer().vocab_size(); })
      .def("special_tokens", [](TextModel& self) { return self.tokenizer().named_tokens(); })
      .def(
          "chat",
          [](TextModel& self, nb::handle json) {
            const std::string text = text_in(json, "chat");
            return python_text(without_gil([&] { return ChatTemplate::of(self.tokenizer()).format(text); }));
          },
          nb::arg("json"), "A conversation as its template writes it.")
      .def(
          "unnamed",
          [](TextModel& self, nb::handle json) {
            return ChatTemplate::of(self.tokenizer()).unnamed(text_in(json, "chat"));
          },
          nb::arg("json"), "What of a conversation its template does not name.");
  bind_experiments(model);
  m.def("kept_models", [](const std::string& path) {
    std::vector<std::pair<std::int64_t, std::string>> all;
    for (const KeptModel& kept : kept_models(path)) all.emplace_back(kept.step, kept.path.string());
    return all;
  });
  m.def("load", &load, nb::arg("path"), nb::arg("weights").none(), nb::arg("precision").none(), nb::arg("tokenizer"));
}

}  // namespace attn::python
