// The operator and its gradient.
#include "attn/attention.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "exchange.hpp"
#include "layout.hpp"
#include "options.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

nb::tuple forward(nb::handle query, nb::handle key, nb::handle value, nb::object attn_mask, nb::object sinks,
                  nb::object alibi_slopes, nb::object key_lengths, nb::object query_starts, nb::object key_starts,
                  nb::object block_mask, std::optional<std::uint64_t> dropout_key, double dropout_p, bool is_causal,
                  std::optional<double> scale, std::int64_t window_left, std::int64_t window_right,
                  std::int64_t block_query, std::int64_t block_key, double softcap, std::string_view causal_alignment,
                  std::string_view precision, std::optional<Addresses> score_function, bool enable_gqa, bool return_lse,
                  bool return_weights, nb::object weight_rows, int framework) {
  const auto with = static_cast<Framework>(framework);
  const Array q = read(query, kOp, "query", with), k = read(key, kOp, "key", with), v = read(value, kOp, "value", with);
  Options o = read_options({attn_mask, sinks, alibi_slopes, key_lengths, query_starts, key_starts, block_mask,
                            dropout_key, dropout_p, is_causal, scale, window_left, window_right, block_query, block_key,
                            softcap, causal_alignment, precision, score_function},
                           with);
  o.options.return_weights = return_weights;
  o.take(o.options.weight_rows, weight_rows, "return_weights", with);
  AttentionResult result;
  {
    const nb::gil_scoped_release released;
    const Layout all = layout(q.tensor, k.tensor, v.tensor, enable_gqa);
    for (Tensor* mask : {&o.options.mask.keep, &o.options.mask.bias, &o.options.mask.block_keep}) {
      if (mask->defined()) *mask = mask_of(*mask, all);
    }
    result = attn::attention(all.q, all.k, all.v, o.options);
    result = {unfold(result.output, all), unfold(result.lse, all), unfold(result.weights, all)};
  }
  return nb::make_tuple(give(result.output, with), return_lse ? give(result.lse, with) : nb::none(),
                        give(result.weights, with));
}

nb::tuple backward(nb::handle d_output, nb::handle query, nb::handle key, nb::handle value, nb::handle output,
                   nb::handle lse, nb::object attn_mask, nb::object sinks, nb::object alibi_slopes,
                   nb::object key_lengths, nb::object query_starts, nb::object key_starts, nb::object block_mask,
                   std::optional<std::uint64_t> dropout_key, double dropout_p, bool is_causal,
                   std::optional<double> scale, std::int64_t window_left, std::int64_t window_right,
                   std::int64_t block_query, std::int64_t block_key, double softcap, std::string_view causal_alignment,
                   std::string_view precision, std::optional<Addresses> score_function, int framework) {
  constexpr const char* op = "scaled_dot_product_attention_backward";
  const auto with = static_cast<Framework>(framework);
  const Array d = read(d_output, op, "the output's gradient", with);
  const Array q = read(query, op, "query", with), k = read(key, op, "key", with), v = read(value, op, "value", with);
  const Array out = read(output, op, "output", with), sums = read(lse, op, "lse", with);
  const Options o = read_options({attn_mask, sinks, alibi_slopes, key_lengths, query_starts, key_starts, block_mask,
                                  dropout_key, dropout_p, is_causal, scale, window_left, window_right, block_query,
                                  block_key, softcap, causal_alignment, precision, score_function},
                                 with);
  AttentionGradient grad;
  {
    const nb::gil_scoped_release released;
    grad = attention_backward(d.tensor, q.tensor, k.tensor, v.tensor, o.options, {out.tensor, sums.tensor, {}});
  }
  return nb::make_tuple(give(grad.q, with), give(grad.k, with), give(grad.v, with), give(grad.bias, with),
                        give(grad.sinks, with));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("use_exchange", &use_exchange, nb::arg("type"), nb::arg("capsule"),
        "Tensors of that type are taken and made by its DLPack C exchange API; False for one not known here.");
  m.def("forward", &forward, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
        nb::arg("attn_mask").none(), nb::arg("sinks").none(), nb::arg("alibi_slopes").none(),
        nb::arg("key_lengths").none(), nb::arg("query_starts").none(), nb::arg("key_starts").none(),
        nb::arg("block_mask").none(), nb::arg("dropout_key").none(), nb::arg("dropout_p"), nb::arg("is_causal"),
        nb::arg("scale").none(), nb::arg("window_left"), nb::arg("window_right"), nb::arg("block_query"),
        nb::arg("block_key"), nb::arg("softcap"), nb::arg("causal_alignment"), nb::arg("precision"),
        nb::arg("score_function").none(), nb::arg("enable_gqa"), nb::arg("return_lse"), nb::arg("return_weights"),
        nb::arg("weight_rows").none(), nb::arg("framework"),
        "(output, lse or None, weights or None), as arrays of framework 0 NumPy, 1 PyTorch, 2 DLPack.");
  m.def("backward", &backward, nb::arg("d_output"), nb::arg("query").none(), nb::arg("key").none(),
        nb::arg("value").none(), nb::arg("output"), nb::arg("lse"), nb::arg("attn_mask").none(),
        nb::arg("sinks").none(), nb::arg("alibi_slopes").none(), nb::arg("key_lengths").none(),
        nb::arg("query_starts").none(), nb::arg("key_starts").none(), nb::arg("block_mask").none(),
        nb::arg("dropout_key").none(), nb::arg("dropout_p"), nb::arg("is_causal"), nb::arg("scale").none(),
        nb::arg("window_left"), nb::arg("window_right"), nb::arg("block_query"), nb::arg("block_key"),
        nb::arg("softcap"), nb::arg("causal_alignment"), nb::arg("precision"), nb::arg("score_function").none(),
        nb::arg("framework"), "Gradients of query, key, value (b, h, t, d), a float mask or None, sinks or None.");
}

}  // namespace attn::python
