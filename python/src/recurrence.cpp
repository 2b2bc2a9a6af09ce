// Linear attention and the convolution before it, with their gradients.
#include <nanobind/nanobind.h>

#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/linear_attention.hpp"
#include "attn/recurrent_parts.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

// One of two texts.
bool second_of(nb::handle given, const char* op, const char* what, const char* first, const char* second) {
  const auto name = plain<std::string>(given, op, what);
  if (name == first || name == second) return name == second;
  throw Error(Error::Kind::argument, op,
              std::string(what).append(" \"").append(first).append("\" or \"").append(second).append("\""),
              "\"" + name + "\"");
}

// The arrays of a call and their options.
struct Recurrence {
  // inputs: (query, key, value, decay, beta, initial_state, lengths, cu_seqlens)
  Recurrence(const nb::tuple& inputs, nb::handle rule, nb::handle scale, nb::handle heads, const char* op,
             Framework with) {
    constexpr const char* kNames[] = {"query", "key",           "value",   "decay",
                                      "beta",  "initial_state", "lengths", "cu_seqlens"};
    for (std::size_t i = 0; i < std::size(kNames); ++i)
      arrays[i] = i < 3 ? read(inputs[i], op, kNames[i], with) : read_optional(inputs[i], op, kNames[i], with);
    const bool delta = second_of(rule, op, "rule", "plain", "delta");
    options.rule = delta ? StateRule::delta : StateRule::plain;
    options.scale = optional_plain<double>(scale, op, "scale");
    const bool tiled = second_of(heads, op, "heads", "grouped", "tiled");
    options.heads = tiled ? HeadMap::tiled : HeadMap::grouped;
    options.decay = arrays[3].tensor, options.beta = arrays[4].tensor, options.initial_state = arrays[5].tensor;
    options.lengths = arrays[6].tensor, options.starts = arrays[7].tensor;
  }

  const Tensor& operator[](std::size_t i) const { return arrays[i].tensor; }

  Array arrays[8];
  LinearAttentionOptions options;
};

nb::tuple recurrence(const nb::tuple& inputs, nb::handle rule, nb::handle scale, nb::handle heads, int framework) {
  const auto with = static_cast<Framework>(framework);
  const Recurrence in(inputs, rule, scale, heads, "linear_attention", with);
  const auto r = without_gil([&] { return linear_attention(in[0], in[1], in[2], in.options); });
  return nb::make_tuple(give(r.output, with), give(r.state, with));
}

nb::tuple recurrence_backward(nb::handle d_output, nb::handle d_state, const nb::tuple& inputs, nb::handle rule,
                              nb::handle scale, nb::handle heads, int framework) {
  constexpr const char* op = "linear_attention_backward";
  const auto with = static_cast<Framework>(framework);
  const Array d_o = read(d_output, op, "the output's gradient", with),
              d_s = read_optional(d_state, op, "the state's gradient", with);
  const Recurrence in(inputs, rule, scale, heads, op, with);
  const auto g =
      without_gil([&] { return linear_attention_backward(d_o.tensor, d_s.tensor, in[0], in[1], in[2], in.options); });
  return nb::make_tuple(give(g.q, with), give(g.k, with), give(g.v, with), give(g.decay, with), give(g.beta, with),
                        give(g.initial_state, with));
}

// inputs: (x, weight, bias, initial_state, cu_seqlens)
struct Convolution {
  Convolution(const nb::tuple& inputs, nb::handle silu, const char* op, Framework with)
      : x(read(inputs[0], op, "x", with)),
        weight(read(inputs[1], op, "weight", with)),
        bias(read_optional(inputs[2], op, "bias", with)),
        state(read_optional(inputs[3], op, "initial_state", with)),
        starts(read_optional(inputs[4], op, "cu_seqlens", with)) {
    options.bias = bias.tensor, options.initial_state = state.tensor, options.starts = starts.tensor;
    options.silu = plain<bool>(silu, op, "silu");
  }

  Array x, weight, bias, state, starts;
  ConvolutionOptions options;
};

nb::tuple convolution(const nb::tuple& inputs, nb::handle silu, int framework) {
  const auto with = static_cast<Framework>(framework);
  const Convolution in(inputs, silu, "causal_convolution", with);
  const auto r = without_gil([&] { return causal_convolution(in.x.tensor, in.weight.tensor, in.options); });
  return nb::make_tuple(give(r.output, with), give(r.state, with));
}

nb::tuple convolution_backward(nb::handle d_output, nb::handle d_state, const nb::tuple& inputs, nb::handle silu,
                               int framework) {
  constexpr const char* op = "causal_convolution_backward";
  const auto with = static_cast<Framework>(framework);
  const Array d_o = read(d_output, op, "the output's gradient", with),
              d_s = read_optional(d_state, op, "the state's gradient", with);
  const Convolution in(inputs, silu, op, with);
  const auto g = without_gil(
      [&] { return causal_convolution_backward(d_o.tensor, d_s.tensor, in.x.tensor, in.weight.tensor, in.options); });
  return nb::make_tuple(give(g.x, with), give(g.weight, with), give(g.bias, with), give(g.initial_state, with));
}

}  // namespace

void bind_recurrence(nb::module_& m) {
  m.def("linear_attention", &recurrence, nb::arg("inputs"), nb::arg("rule").none(), nb::arg("scale").none(),
        nb::arg("heads").none(), nb::arg("framework"), "(output, state) as arrays of the framework.");
  m.def("linear_attention_backward", &recurrence_backward, nb::arg("d_output"), nb::arg("d_state").none(),
        nb::arg("inputs"), nb::arg("rule").none(), nb::arg("scale").none(), nb::arg("heads").none(),
        nb::arg("framework"),
        "Gradients of query, key, value, decay, beta and initial_state; None for what is not there.");
  m.def("causal_convolution", &convolution, nb::arg("inputs"), nb::arg("silu").none(), nb::arg("framework"),
        "(output, state) as arrays of the framework.");
  m.def("causal_convolution_backward", &convolution_backward, nb::arg("d_output"), nb::arg("d_state").none(),
        nb::arg("inputs"), nb::arg("silu").none(), nb::arg("framework"),
        "Gradients of x, weight, bias and initial_state; None for what is not there.");
}

}  // namespace attn::python
