#include "options.hpp"

#include <string>
#include <utility>

#include "attn/error.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

Align align_of(std::string_view name) {
  if (name == "top_left") return Align::top_left;
  if (name == "bottom_right") return Align::bottom_right;
  throw Error(Error::Kind::argument, kOp, "causal_alignment \"top_left\" or \"bottom_right\"",
              "\"" + std::string(name) + "\"");
}

ScoreFunction score_function_of(const Addresses& at) {
  ScoreFunction result;
  result.forward = reinterpret_cast<ScoreForward>(at[0]);
  result.backward = reinterpret_cast<ScoreBackward>(at[1]);
  result.forward64 = reinterpret_cast<ScoreForward64>(at[2]);
  result.backward64 = reinterpret_cast<ScoreBackward64>(at[3]);
  result.user = reinterpret_cast<void*>(at[4]);
  return result;
}

void make(Options* self, int framework, nb::handle alibi_slopes, nb::handle key_lengths, nb::handle query_starts,
          nb::handle key_starts, nb::handle block_mask, nb::handle block_query, nb::handle block_key,
          nb::handle dropout_key, nb::handle dropout_p, nb::handle is_causal, nb::handle scale, nb::handle window_left,
          nb::handle window_right, nb::handle softcap, nb::handle causal_alignment, nb::handle precision,
          nb::handle score_function, nb::handle query_offset, nb::handle key_offset, nb::handle output_dtype,
          nb::handle relative_bidirectional, nb::handle relative_max_distance) {
  const auto from = static_cast<Framework>(framework);
  Options result;
  AttentionOptions& o = result.options;
  o.mask.is_causal = plain<bool>(is_causal, kOp, "is_causal");
  o.mask.align = align_of(plain<std::string_view>(causal_alignment, kOp, "causal_alignment"));
  o.mask.window_left = plain<std::int64_t>(window_left, kOp, "window's left");
  o.mask.window_right = plain<std::int64_t>(window_right, kOp, "window's right");
  result.take(o.mask.key_lengths, key_lengths, "key_lengths", from);
  result.take(o.mask.query_starts, query_starts, "cu_seqlens_q", from);
  result.take(o.mask.key_starts, key_starts, "cu_seqlens_k", from);
  result.take(o.mask.block_keep, block_mask, "block_mask", from);
  if (o.mask.block_keep.defined()) {
    o.mask.block_query = plain<std::int64_t>(block_query, kOp, "block_size");
    o.mask.block_key = plain<std::int64_t>(block_key, kOp, "block_size");
  }
  o.scale = optional_plain<double>(scale, kOp, "scale");
  o.softcap = plain<double>(softcap, kOp, "softcap");
  result.take(o.alibi_slopes, alibi_slopes, "alibi_slopes", from);
  o.dropout = plain<double>(dropout_p, kOp, "dropout_p");
  if (o.dropout > 0) o.dropout_key = optional_plain<std::uint64_t>(dropout_key, kOp, "dropout's key");
  o.precision = parse_precision(plain<std::string_view>(precision, kOp, "precision"));
  result.take_offset(o.query_offset, query_offset, "query_offset", from);
  result.take_offset(o.key_offset, key_offset, "key_offset", from);
  o.relative_bias.bidirectional = plain<bool>(relative_bidirectional, kOp, "relative_bidirectional");
  o.relative_bias.max_distance = plain<std::int64_t>(relative_max_distance, kOp, "relative_max_distance");
  o.output_dtype = optional_dtype(output_dtype, kOp, "output_dtype");
  if (!score_function.is_none()) {
    o.score_function = score_function_of(plain<Addresses>(score_function, kOp, "score_function's addresses"));
  }
  new (self) Options(std::move(result));
}

}  // namespace

void Options::take(Tensor& to, nb::handle object, const char* what, Framework from) {
  if (!object.is_none()) to = kept.emplace_back(read(object, kOp, what, from)).tensor;
}

void Options::take_offset(Offset& to, nb::handle object, const char* what, Framework from) {
  Tensor positions;
  take(positions, object, what, from);
  if (!positions.defined()) return;
  const bool is_one = positions.rank() == 0 && positions.dtype() == DType::i64;
  to = is_one ? Offset(*positions.data<std::int64_t>()) : Offset(positions);
}

void Options::take_return_weights(nb::handle wanted, Framework from) {
  options.return_weights = !wanted.is(nb::handle(Py_False));
  if (!nb::isinstance<nb::bool_>(wanted)) take(options.weight_rows, wanted, "return_weights", from);
}

Options with_inputs(const Options& options, nb::handle attn_mask, nb::handle sinks, nb::handle relative_bias,
                    Framework from) {
  Options result = options;
  Mask& mask = result.options.mask;
  result.take(mask.bias, attn_mask, "attn_mask", from);
  if (mask.bias.defined() && mask.bias.dtype() == DType::boolean) std::swap(mask.bias, mask.keep);
  result.take(result.options.sinks, sinks, "sinks", from);
  result.take(result.options.relative_bias.table, relative_bias, "relative_bias", from);
  return result;
}

std::optional<DType> optional_dtype(nb::handle object, const char* op, const char* what) {
  if (object.is_none()) return std::nullopt;
  const auto wanted = plain<std::string_view>(object, op, what);
  const auto found = dtype_named(wanted);
  if (found && is_floating(*found)) return found;
  throw Error(Error::Kind::dtype, op, std::string(what) + " float32, float64, bfloat16 or float16",
              std::string(wanted));
}

void bind_options(nb::module_& m) {
  const nb::object none = nb::none();
  nb::class_<Options>(m, "Options", "The operator's options by name; what is not given is as if it were not there.")
      .def("__init__", &make, nb::arg("framework"), nb::arg("alibi_slopes").none() = none,
           nb::arg("key_lengths").none() = none, nb::arg("query_starts").none() = none,
           nb::arg("key_starts").none() = none, nb::arg("block_mask").none() = none, nb::arg("block_query").none() = 0,
           nb::arg("block_key").none() = 0, nb::arg("dropout_key").none() = none, nb::arg("dropout_p").none() = 0.0,
           nb::arg("is_causal").none() = false, nb::arg("scale").none() = none, nb::arg("window_left").none() = -1,
           nb::arg("window_right").none() = -1, nb::arg("softcap").none() = 0.0,
           nb::arg("causal_alignment").none() = "top_left", nb::arg("precision").none() = "highest",
           nb::arg("score_function").none() = none, nb::arg("query_offset").none() = none,
           nb::arg("key_offset").none() = none, nb::arg("output_dtype").none() = none,
           nb::arg("relative_bidirectional").none() = true, nb::arg("relative_max_distance").none() = 128);
}

}  // namespace attn::python
