// Encoders, and vectors of sentences by them.
#include "attn/encoder.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "Encoder";

using Ids = std::vector<std::int64_t>;

// A model's files. Threads share it one after the other, as it keeps its last forward pass.
class TextEncoder {
 public:
  explicit TextEncoder(const std::string& folder)
      : encoder_(load_encoder(folder)), settings_(embedding_settings(folder)), folder_(folder) {}

  Ids encode(const std::string& text) {
    if (!tokenizer_) tokenizer_ = BPETokenizer::load(folder_);
    return tokenizer_->encode(text);
  }

  // The ids of a text, cut as the model's files say; longer ones are an error where they say nothing.
  Ids encode_cut(const std::string& text) {
    Ids ids = encode(text);
    const std::int64_t most = std::min(settings_.longest, encoder_.config().model.context_length);
    if (settings_.longest == kNoLongest || std::ssize(ids) <= most) return ids;
    const std::string cut = "a text of " + std::to_string(ids.size()) + " tokens is cut to its first " +
                            std::to_string(most) + ", as the model's files say";
    if (PyErr_WarnEx(PyExc_UserWarning, cut.c_str(), 1) != 0) throw nb::python_error();
    return tokenizer_->encode(text, {.most = static_cast<std::size_t>(most)});
  }

  Tensor embed(const std::vector<Ids>& texts, const std::optional<std::string>& pooling,
               std::optional<bool> normalised) {
    EmbeddingSettings chosen = settings_;
    if (pooling && *pooling != "mean" && *pooling != "first") {
      throw Error(Error::Kind::argument, kOp, "pooling \"mean\" or \"first\"", "\"" + *pooling + "\"");
    }
    if (pooling) chosen.pooling = *pooling == "mean" ? Pooling::mean : Pooling::first;
    return encoder_.embed(texts, chosen.pooling, normalised.value_or(chosen.normalised));
  }

  Tensor hidden(const Tensor& ids, Trace* trace) { return encoder_.forward(ids, trace); }

  std::mutex mutex;

 private:
  Encoder encoder_;
  EmbeddingSettings settings_;
  std::string folder_;
  std::optional<BPETokenizer> tokenizer_;
};

// Each item a text, or its ids.
std::vector<Ids> ids_of(TextEncoder& encoder, nb::handle texts) {
  if (nb::isinstance<nb::str>(texts)) {
    throw Error(Error::Kind::dtype, kOp, "a sequence of texts, or of lists of ids", "one text", "put it in a list");
  }
  std::vector<Ids> all;
  for (const nb::handle text : nb::iter(texts)) {
    all.push_back(nb::isinstance<nb::str>(text) ? encoder.encode_cut(text_in(text, kOp))
                                                : plain<Ids>(text, kOp, "a text, or its ids"));
  }
  return all;
}

nb::object embed(TextEncoder& encoder, nb::handle texts, nb::handle pooling, nb::handle normalised) {
  const auto by = optional_plain<std::string>(pooling, kOp, "pooling");
  const auto divided = optional_plain<bool>(normalised, kOp, "normalised");
  const std::vector<Ids> all = ids_of(encoder, texts);
  const Tensor vectors = without_gil([&] {
    const std::lock_guard lock(encoder.mutex);
    return encoder.embed(all, by, divided);
  });
  return give(vectors, Framework::numpy);
}

nb::object hidden(TextEncoder& encoder, nb::handle ids) {
  const Array in = read(ids, kOp, "ids");
  const Tensor states = without_gil([&] {
    const std::lock_guard lock(encoder.mutex);
    const NoGrad no_grad;
    return encoder.hidden(in.tensor, nullptr);
  });
  return give(states, Framework::numpy);
}

nb::dict steps(TextEncoder& encoder, nb::handle text) {
  const Ids ids = nb::isinstance<nb::str>(text) ? encoder.encode(nb::cast<std::string>(text))
                                                : plain<Ids>(text, kOp, "a text, or its ids");
  Trace trace;
  without_gil([&] {
    const std::lock_guard lock(encoder.mutex);
    const NoGrad no_grad;
    return encoder.hidden(Tensor::from(std::span(ids), {static_cast<std::int64_t>(ids.size())}), &trace);
  });
  nb::dict all;
  for (const auto& [name, value] : trace.steps()) all[name.c_str()] = give(value.select(0, 0), Framework::numpy);
  return all;
}

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<TextEncoder>(m, "Encoder", "An encoder read from a model's files.")
      .def(nb::init<const std::string&>(), nb::arg("folder"))
      .def(
          "encode", [](TextEncoder& self, nb::handle text) { return self.encode(text_in(text, "encode")); },
          nb::arg("text").none(), "The ids of a text.")
      .def("embed", &embed, nb::arg("texts"), nb::arg("pooling").none(), nb::arg("normalised").none(),
           "The vectors (n, width) of n texts.")
      .def("hidden", &hidden, nb::arg("ids"), "Hidden states (…, t, width).")
      .def("steps", &steps, nb::arg("text"), "The recorded steps of a text, by name.");
}

}  // namespace attn::python
