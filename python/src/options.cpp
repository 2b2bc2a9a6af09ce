#include "options.hpp"

#include <string>
#include <utility>

#include "attn/error.hpp"

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

}  // namespace

void Options::take(Tensor& to, nb::handle object, const char* what, Framework from) {
  if (!object.is_none()) to = kept.emplace_back(read(object, kOp, what, from)).tensor;
}

Options read_options(const Arguments& a, Framework from) {
  Options result;
  AttentionOptions& o = result.options;
  result.take(o.mask.bias, a.attn_mask, "attn_mask", from);
  if (o.mask.bias.defined() && o.mask.bias.dtype() == DType::boolean) std::swap(o.mask.bias, o.mask.keep);
  o.mask.is_causal = a.is_causal;
  o.mask.align = align_of(a.causal_alignment);
  o.mask.window_left = a.window_left, o.mask.window_right = a.window_right;
  result.take(o.mask.key_lengths, a.key_lengths, "key_lengths", from);
  result.take(o.mask.query_starts, a.query_starts, "cu_seqlens_q", from);
  result.take(o.mask.key_starts, a.key_starts, "cu_seqlens_k", from);
  result.take(o.mask.block_keep, a.block_mask, "block_mask", from);
  if (o.mask.block_keep.defined()) o.mask.block_query = a.block_query, o.mask.block_key = a.block_key;
  o.scale = a.scale;
  o.softcap = a.softcap;
  result.take(o.alibi_slopes, a.alibi_slopes, "alibi_slopes", from);
  result.take(o.sinks, a.sinks, "sinks", from);
  o.dropout = a.dropout_p;
  if (a.dropout_p > 0) o.dropout_key = a.dropout_key;
  o.precision = parse_precision(a.precision);
  if (a.score_function) o.score_function = score_function_of(*a.score_function);
  return result;
}

}  // namespace attn::python
