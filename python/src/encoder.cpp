// Encoders, and vectors of sentences by them.
#include "attn/encoder.hpp"

#include <nanobind/nanobind.h>
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

constexpr const char* kOp = "Encoder";

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
    return encoder.model.forward(in.tensor);
  });
  return give(states, Framework::numpy);
}

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<TextEncoder> encoder(m, "Encoder", "An encoder read from a model's files.");
  encoder.def(nb::init<const std::string&>(), nb::arg("folder"))
      .def(
          "encode", [](TextEncoder& self, nb::handle text) { return self.encode(text_in(text, "encode")); },
          nb::arg("text").none(), "The ids of a text.")
      .def("embed", &embed, nb::arg("texts"), nb::arg("pooling").none(), nb::arg("normalised").none(),
           "The vectors (n, width) of n texts.")
      .def("hidden", &hidden, nb::arg("ids"), "Hidden states (…, t, width).");
  bind_experiments(encoder);
}

}  // namespace attn::python
