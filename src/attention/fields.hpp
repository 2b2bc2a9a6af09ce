// Every field of the operator's options: its name and its kind. A field that is not named here does not compile, since
// there must be as many bindings as fields.
#pragma once

#include <type_traits>

#include "attn/attention.hpp"

namespace attn {

enum class FieldKind {
  value,    // of the whole call
  by_head,  // a tensor (hq)
  table,    // a tensor (buckets, hq)
  cells,    // a tensor that broadcasts to (b, h, tq, tk)
  blocks,   // a tensor that broadcasts to (b, h, blocks of tq, blocks of tk)
  tokens    // a tensor of numbers of tokens
};

// f(name, kind, field) for each, in order. `options` may be const or not.
template <class Options, class F>
void visit_fields(Options& options, F&& f) {
  using enum FieldKind;
  auto& [mask, scale, softcap, score_function, alibi_slopes, relative_bias, sinks, dropout, dropout_keep, dropout_key,
         query_offset, key_offset, heads, precision, output_dtype, return_weights, weight_rows] = options;
  auto& [is_causal, align, window_left, window_right, key_lengths, query_starts, key_starts, keep, bias, block_keep,
         block_query, block_key] = mask;
  auto& [bias_table, bidirectional, max_distance] = relative_bias;
  f("is_causal", value, is_causal), f("align", value, align);
  f("window_left", value, window_left), f("window_right", value, window_right);
  f("key_lengths", tokens, key_lengths), f("query_starts", tokens, query_starts), f("key_starts", tokens, key_starts);
  f("keep", cells, keep), f("bias", cells, bias);
  f("block_keep", blocks, block_keep), f("block_query", value, block_query), f("block_key", value, block_key);
  f("scale", value, scale), f("softcap", value, softcap), f("score_function", value, score_function);
  f("alibi_slopes", by_head, alibi_slopes), f("sinks", by_head, sinks);
  f("relative_bias.table", table, bias_table), f("relative_bias.bidirectional", value, bidirectional);
  f("relative_bias.max_distance", value, max_distance);
  f("dropout", value, dropout), f("dropout_keep", cells, dropout_keep), f("dropout_key", value, dropout_key);
  f("query_offset", value, query_offset), f("key_offset", value, key_offset), f("heads", value, heads);
  f("precision", value, precision), f("output_dtype", value, output_dtype);
  f("return_weights", value, return_weights), f("weight_rows", tokens, weight_rows);
}

// f(name, kind, tensor) for each that is a tensor.
template <class Options, class F>
void visit_tensors(Options& options, F&& f) {
  visit_fields(options, [&f](const char* name, FieldKind kind, auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Tensor>) f(name, kind, field);
  });
}

}  // namespace attn
