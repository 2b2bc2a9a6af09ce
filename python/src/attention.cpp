// The operator and its gradient.
#include "attn/attention.hpp"

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "bind.hpp"
#include "exchange.hpp"
#include "layout.hpp"
#include "options.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

// An error of the kind that PyTorch raises, for its tensors: other libraries have none of their own to follow.
void refuse_mixed_dtypes(const Inputs& in, Framework from) {
  const DType q = in.q.tensor.dtype(), k = in.k.tensor.dtype(), v = in.v.tensor.dtype();
  if (from != Framework::torch || (q == k && q == v)) return;
  const std::string found = std::string(name(q)).append(", ").append(name(k)).append(" and ").append(name(v));
  const Error error(Error::Kind::dtype, kOp, "query, key and value of one dtype", found,
                    "convert them with .to(dtype)");
  throw std::runtime_error(error.what());
}

nb::tuple forward(const nb::tuple& inputs, const Options& options, nb::handle enable_gqa, nb::handle return_lse,
                  nb::handle return_weights, int framework) {
  const bool grouped = plain<bool>(enable_gqa, kOp, "enable_gqa"), lse = plain<bool>(return_lse, kOp, "return_lse");
  const auto with = static_cast<Framework>(framework);
  Inputs in = take_inputs(inputs, options, kOp, with);
  refuse_mixed_dtypes(in, with);
  in.options.take_return_weights(return_weights, with);
  AttentionOptions& o = in.options.options;
  const AttentionResult result = without_gil([&]() -> AttentionResult {
    const Layout all = layout(in.q.tensor, in.k.tensor, in.v.tensor, grouped);
    for (Tensor* mask : {&o.mask.keep, &o.mask.bias, &o.mask.block_keep}) {
      if (mask->defined()) *mask = mask_of(*mask, all);
    }
    const AttentionResult found = attn::attention(all.q, all.k, all.v, o);
    return {unfold(found.output, all), unfold(found.lse, all), unfold(found.weights, all)};
  });
  in.options.check_score_function();
  return nb::make_tuple(give(result.output, with), lse ? give(result.lse, with) : nb::none(),
                        give(result.weights, with));
}

nb::tuple backward(nb::handle d_output, const nb::tuple& inputs, nb::handle output, nb::handle lse,
                   const Options& options, int framework) {
  constexpr const char* op = "scaled_dot_product_attention_backward";
  const auto with = static_cast<Framework>(framework);
  const Array d = read(d_output, op, "the output's gradient", with);
  Inputs in = take_inputs(inputs, options, op, with);
  const Array out = read(output, op, "output", with), sums = read(lse, op, "lse", with);
  AttentionOptions& o = in.options.options;
  o.output_dtype.reset();  // gradients are of the inputs' dtype
  const AttentionResult given{out.tensor, sums.tensor};
  const auto grad =
      without_gil([&] { return attention_backward(d.tensor, in.q.tensor, in.k.tensor, in.v.tensor, o, given); });
  in.options.check_score_function();
  return give_gradients(grad, with);
}

nb::tuple merge(const nb::list& outputs, const nb::list& lses, nb::handle dtype, int framework) {
  const auto with = static_cast<Framework>(framework);
  std::vector<Array> kept;
  const auto tensors = [&](const nb::list& arrays, const char* what) {
    std::vector<Tensor> all;
    for (const nb::handle array : arrays) all.push_back(kept.emplace_back(read(array, "merge", what, with)).tensor);
    return all;
  };
  const std::vector<Tensor> parts = tensors(outputs, "outputs"), sums = tensors(lses, "lses");
  const std::optional<DType> wanted = optional_dtype(dtype, "merge", "dtype");
  const AttentionResult result = without_gil([&] { return attn::merge(parts, sums, wanted); });
  return nb::make_tuple(give(result.output, with), give(result.lse, with));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("use_exchange", &use_exchange, nb::arg("type"), nb::arg("capsule"),
        "Tensors of that type are taken and made by its DLPack C exchange API; False for one not known here.");
  m.def("forward", &forward, nb::arg("inputs"), nb::arg("options"), nb::arg("enable_gqa").none(),
        nb::arg("return_lse").none(), nb::arg("return_weights").none(), nb::arg("framework"),
        "(output, lse or None, weights or None), as arrays of framework 0 NumPy, 1 PyTorch, 2 DLPack.");
  m.def("backward", &backward, nb::arg("d_output"), nb::arg("inputs"), nb::arg("output"), nb::arg("lse"),
        nb::arg("options"), nb::arg("framework"),
        "Gradients of query, key, value (b, h, t, d), a float mask, sinks and relative_bias; None for what is not "
        "there.");
  m.def("merge", &merge, nb::arg("outputs"), nb::arg("lses"), nb::arg("dtype").none(), nb::arg("framework"),
        "(output, lse) of the same queries over all keys.");
}

}  // namespace attn::python
