// Encoders, and vectors of sentences by them.
#include "attn/encoder.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/layers.hpp"
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

// As `attn report --model` makes it, a layer at a time.
nb::str page(TextEncoder& self, const Ids& ids, nb::handle tokens, nb::handle key_tokens, nb::handle title,
             nb::handle layer, nb::handle head, bool live) {
  ReportOptions options = page_options(tokens, key_tokens, title, layer, head);
  return python_text(without_gil([&] {
    const std::lock_guard lock(self.mutex);
    const NoGrad no_grad;
    if (live) make_live(options, self.folder(), "", false), options.live->ids = ids;
    ReportWriter writer(options, std::ssize(self.model.config().model.layers));
    read_layers(self.model, tensor_of(ids), {},
                [&](std::size_t i, const Trace& steps) { writer.add(steps, static_cast<std::int64_t>(i) + 1); });
    return writer.page();
  }));
}

}  // namespace

void bind_encoder(nb::module_& m) {
  m.def("is_encoder", [](const std::string& path) { return is_encoder(path); });
  nb::class_<TextEncoder> encoder(m, "Encoder", "An encoder read from a model's files.");
  encoder.def(nb::init<const std::string&>(), nb::arg("folder"))
      .def(
          "encode", [](TextEncoder& self, nb::handle text) { return self.encode(text_in(text, "encode")); },
          nb::arg("text").none(), "The ids of a text.")
      .def("embed", &embed, nb::arg("texts"), nb::arg("pooling").none(), nb::arg("normalised").none(),
           "The vectors (n, width) of n texts.")
      .def("page", &page, nb::arg("ids"), nb::arg("tokens"), nb::arg("key_tokens"), nb::arg("title"),
           nb::arg("layer").none(), nb::arg("head").none(), nb::arg("live"))
      .def("hidden", &hidden, nb::arg("ids"), "Hidden states (…, t, width).");
  bind_experiments(encoder);
}

}  // namespace attn::python
