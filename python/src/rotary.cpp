// Rotary positions.
#include "rotary.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/rotary.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "rotary";

Tensor float32(const Tensor& t, const char* what) {
  if (is_floating(t.dtype())) return t.to(DType::f32);
  throw Error(Error::Kind::dtype, kOp, std::string(what) + " of float32", name(t.dtype()));
}

// By inv_freq, at `positions` or from `offset` on; or by rows of cos and sin, those of `positions` where they are
// given.
nb::object turn(nb::handle x, nb::handle inv_freq, nb::handle attention_factor, nb::handle cos, nb::handle sin,
                nb::handle positions, nb::handle offset, nb::handle interleaved, nb::handle back, int framework) {
  const auto with = static_cast<Framework>(framework);
  const Array in = read(x, kOp, "x", with), rates = read_optional(inv_freq, kOp, "inv_freq"),
              c = read_optional(cos, kOp, "cos", with), s = read_optional(sin, kOp, "sin", with),
              at = read_optional(positions, kOp, "positions", with);
  const auto factor = plain<double>(attention_factor, kOp, "attention_factor");
  const auto first = plain<std::int64_t>(offset, kOp, "offset");
  const auto layout = plain<bool>(interleaved, kOp, "interleaved") ? RotaryLayout::interleaved : RotaryLayout::halves;
  const bool backward = plain<bool>(back, kOp, "back");
  const Tensor result = without_gil([&] {
    if (in.tensor.rank() < 2) {
      throw Error(Error::Kind::shape, kOp, "x (…, tokens, head_dim)", in.tensor.shape().str());
    }
    RotaryTable table;
    if (rates.tensor.defined()) {
      const RotaryFrequencies frequencies{float32s(rates.tensor), factor, layout};
      table = at.tensor.defined() ? rotary_table(frequencies, at.tensor)
                                  : rotary_table(frequencies, in.tensor.size(-2), first);
    } else {
      table = {float32(c.tensor, "cos"), float32(s.tensor, "sin"), layout};
      if (at.tensor.defined()) table = rotary_rows(table, at.tensor);
    }
    return backward ? rotary_backward(in.tensor, table) : attn::rotary(in.tensor, table);
  });
  return give(result, with);
}

nb::tuple frequencies_of(const std::string& json, nb::handle layer, nb::handle length) {
  const auto layer_type = plain<std::string>(layer, "rotary_frequencies", "layer_type");
  const auto wanted = plain<std::int64_t>(length, "rotary_frequencies", "length");
  const RotaryFrequencies f = rotary_frequencies(parse_rope_config(json, layer_type), wanted);
  const auto pairs = static_cast<std::int64_t>(f.inv_freq.size());
  return nb::make_tuple(give(Tensor::from(std::span(f.inv_freq), {pairs}), Framework::numpy), f.attention_factor);
}

}  // namespace

std::vector<float> float32s(const Tensor& t) {
  if (t.rank() != 1 || !is_floating(t.dtype())) {
    throw Error(Error::Kind::shape, kOp, "inv_freq (rotary_dim / 2) of float32", t.shape().str());
  }
  const Tensor own = t.to(DType::f32).contiguous();
  return {own.data<float>(), own.data<float>() + own.numel()};
}

void bind_rotary(nb::module_& m) {
  m.def("rotary", &turn, nb::arg("x").none(), nb::arg("inv_freq").none(), nb::arg("attention_factor").none(),
        nb::arg("cos").none(), nb::arg("sin").none(), nb::arg("positions").none(), nb::arg("offset").none(),
        nb::arg("interleaved").none(), nb::arg("back").none(), nb::arg("framework"),
        "x turned by its positions, or turned back, as an array of the framework.");
  m.def("rotary_frequencies", &frequencies_of, nb::arg("json"), nb::arg("layer_type").none(), nb::arg("length").none(),
        "(inv_freq, attention_factor) of a model's config.json.");
}

}  // namespace attn::python
