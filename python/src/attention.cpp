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
void refuse_mixed_dtypes(const Tensor& q, const Tensor& k, const Tensor& v, Framework from) {
  if (from != Framework::torch || (q.dtype() == k.dtype() && q.dtype() == v.dtype())) return;
  const auto named = [](const Tensor& tensor) { return std::string(name(tensor.dtype())); };
  throw std::runtime_error(Error(Error::Kind::dtype, kOp, "query, key and value of one dtype",
                                 named(q) + ", " + named(k) + " and " + named(v), "convert them with .to(dtype)")
                               .what());
}

nb::tuple forward(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask, nb::handle sinks,
                  nb::handle relative_bias, const Options& options, nb::handle enable_gqa, nb::handle return_lse,
                  nb::handle return_weights, int framework) {
  const bool grouped = plain<bool>(enable_gqa, kOp, "enable_gqa"), lse = plain<bool>(return_lse, kOp, "return_lse");
  const auto with = static_cast<Framework>(framework);
  const Array q = read(query, kOp, "query", with), k = read(key, kOp, "key", with), v = read(value, kOp, "value", with);
  refuse_mixed_dtypes(q.tensor, k.tensor, v.tensor, with);
  Options o = with_inputs(options, attn_mask, sinks, relative_bias, with);
  o.take_return_weights(return_weights, with);
  AttentionResult result;
  {
    const nb::gil_scoped_release released;
    const Layout all = layout(q.tensor, k.tensor, v.tensor, grouped);
    for (Tensor* mask : {&o.options.mask.keep, &o.options.mask.bias, &o.options.mask.block_keep}) {
      if (mask->defined()) *mask = mask_of(*mask, all);
    }
    result = attn::attention(all.q, all.k, all.v, o.options);
    result = {unfold(result.output, all), unfold(result.lse, all), unfold(result.weights, all)};
  }
  return nb::make_tuple(give(result.output, with), lse ? give(result.lse, with) : nb::none(),
                        give(result.weights, with));
}

nb::tuple backward(nb::handle d_output, nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                   nb::handle sinks, nb::handle relative_bias, nb::handle output, nb::handle lse,
                   const Options& options, int framework) {
  constexpr const char* op = "scaled_dot_product_attention_backward";
  const auto with = static_cast<Framework>(framework);
  const Array d = read(d_output, op, "the output's gradient", with);
  const Array q = read(query, op, "query", with), k = read(key, op, "key", with), v = read(value, op, "value", with);
  const Array out = read(output, op, "output", with), sums = read(lse, op, "lse", with);
  Options o = with_inputs(options, attn_mask, sinks, relative_bias, with);
  o.options.output_dtype.reset();  // gradients are of the inputs' dtype
  AttentionGradient grad;
  {
    const nb::gil_scoped_release released;
    grad = attention_backward(d.tensor, q.tensor, k.tensor, v.tensor, o.options, {out.tensor, sums.tensor, {}});
  }
  return nb::make_tuple(give(grad.q, with), give(grad.k, with), give(grad.v, with), give(grad.bias, with),
                        give(grad.sinks, with), give(grad.relative_bias, with));
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
  AttentionResult result;
  {
    const nb::gil_scoped_release released;
    result = attn::merge(parts, sums, wanted);
  }
  return nb::make_tuple(give(result.output, with), give(result.lse, with));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("use_exchange", &use_exchange, nb::arg("type"), nb::arg("capsule"),
        "Tensors of that type are taken and made by its DLPack C exchange API; False for one not known here.");
  m.def("forward", &forward, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
        nb::arg("attn_mask").none(), nb::arg("sinks").none(), nb::arg("relative_bias").none(), nb::arg("options"),
        nb::arg("enable_gqa").none(), nb::arg("return_lse").none(), nb::arg("return_weights").none(),
        nb::arg("framework"),
        "(output, lse or None, weights or None), as arrays of framework 0 NumPy, 1 PyTorch, 2 DLPack.");
  m.def("backward", &backward, nb::arg("d_output"), nb::arg("query").none(), nb::arg("key").none(),
        nb::arg("value").none(), nb::arg("attn_mask").none(), nb::arg("sinks").none(), nb::arg("relative_bias").none(),
        nb::arg("output"), nb::arg("lse"), nb::arg("options"), nb::arg("framework"),
        "Gradients of query, key, value (b, h, t, d), a float mask, sinks and relative_bias; None for what is not "
        "there.");
  m.def("merge", &merge, nb::arg("outputs"), nb::arg("lses"), nb::arg("dtype").none(), nb::arg("framework"),
        "(output, lse) of the same queries over all keys.");
}

}  // namespace attn::python
