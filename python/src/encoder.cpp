// Encoders, and vectors of sentences by them.
#include "attn/encoder.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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

// A model's folder. Threads share it one after the other, as it keeps its last forward pass.
class TextEncoder {
 public:
  explicit TextEncoder(const std::string& folder)
      : encoder_(load_encoder(folder)), settings_(embedding_settings(folder)), folder_(folder) {}

  Ids encode(const std::string& text) {
    if (!tokenizer_) tokenizer_ = BPETokenizer::load(folder_);
    return tokenizer_->encode(text);
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
    all.push_back(nb::isinstance<nb::str>(text) ? encoder.encode(nb::cast<std::string>(text))
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
    return encoder.hidden(Tensor::from(std::span(ids), {static_cast<std::int64_t>(ids.size())}), &trace);
  });
  nb::dict all;
  for (const auto& [name, value] : trace.steps()) all[name.c_str()] = give(value.select(0, 0), Framework::numpy);
  return all;
}

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<TextEncoder>(m, "Encoder", "An encoder read from a model's folder.")
      .def(nb::init<const std::string&>(), nb::arg("folder"))
      .def("encode", &TextEncoder::encode, nb::arg("text"), "The ids of a text.")
      .def("embed", &embed, nb::arg("texts"), nb::arg("pooling").none(), nb::arg("normalised").none(),
           "The vectors (n, width) of n texts.")
      .def("hidden", &hidden, nb::arg("ids"), "Hidden states (…, t, width).")
      .def("steps", &steps, nb::arg("text"), "The recorded steps of a text, by name.");
}

}  // namespace attn::python
