#include <algorithm>
#include <string>
#include <utility>

#include "attn/attention.hpp"
#include "attn/error.hpp"

namespace attn {
namespace {

// Without its tensor a mask would allow all.
Tensor given(Tensor tensor, const char* what) {
  if (!tensor.defined()) throw Error(Error::Kind::argument, "mask", what, "no tensor");
  return tensor;
}

}  // namespace

Mask Mask::causal(Align align) { return {.is_causal = true, .align = align}; }
Mask Mask::window(std::int64_t left, std::int64_t right, Align align) {
  return {.align = align, .window_left = left, .window_right = right};
}
Mask Mask::lengths(Tensor key_lengths) { return {.key_lengths = given(std::move(key_lengths), "key_lengths")}; }
Mask Mask::sequences(Tensor query_starts, Tensor key_starts) {
  return {.query_starts = given(std::move(query_starts), "query_starts"),
          .key_starts = given(std::move(key_starts), "key_starts")};
}
Mask Mask::boolean(Tensor keep) { return {.keep = given(std::move(keep), "keep")}; }
Mask Mask::additive(Tensor bias) { return {.bias = given(std::move(bias), "bias")}; }
Mask Mask::blocks(Tensor block_keep, std::int64_t block_query, std::int64_t block_key) {
  return {.block_keep = given(std::move(block_keep), "block_keep"), .block_query = block_query, .block_key = block_key};
}

bool Mask::empty() const noexcept {
  return !is_causal && !has_window() && !key_lengths.defined() && !query_starts.defined() && !key_starts.defined() &&
         !keep.defined() && !bias.defined() && !block_keep.defined();
}

Mask operator&(Mask a, const Mask& b) {
  const auto once = [](bool in_a, bool in_b, const char* part) {
    if (in_a && in_b) throw Error(Error::Kind::argument, "mask", std::string("one ") + part + " part", "two");
  };
  once(a.is_causal, b.is_causal, "causal");
  once(a.has_window(), b.has_window(), "window");
  once(a.key_lengths.defined(), b.key_lengths.defined(), "key_lengths");
  once(a.query_starts.defined(), b.query_starts.defined(), "sequences");
  once(a.keep.defined(), b.keep.defined(), "boolean");
  once(a.bias.defined(), b.bias.defined(), "additive");
  once(a.block_keep.defined(), b.block_keep.defined(), "block");
  const bool a_aligned = a.is_causal || a.has_window(), b_aligned = b.is_causal || b.has_window();
  if (a_aligned && b_aligned && a.align != b.align) {
    throw Error(Error::Kind::argument, "mask", "one alignment", "top_left and bottom_right");
  }
  if (b_aligned) a.align = b.align;
  a.is_causal = a.is_causal || b.is_causal;
  if (b.has_window()) a.window_left = b.window_left, a.window_right = b.window_right;
  if (b.key_lengths.defined()) a.key_lengths = b.key_lengths;
  if (b.query_starts.defined()) a.query_starts = b.query_starts, a.key_starts = b.key_starts;
  if (b.keep.defined()) a.keep = b.keep;
  if (b.bias.defined()) a.bias = b.bias;
  if (b.block_keep.defined()) a.block_keep = b.block_keep, a.block_query = b.block_query, a.block_key = b.block_key;
  return a;
}

Tensor causal_keep(std::int64_t tq, std::int64_t tk, Align align) {
  Tensor keep = Tensor::zeros({tq, tk}, DType::boolean);
  const std::int64_t shift = align == Align::bottom_right ? tk - tq : 0;
  for (std::int64_t i = 0; i < (tk == 0 ? 0 : tq); ++i) {
    keep.select(0, i).slice(0, 0, std::clamp<std::int64_t>(i + shift + 1, 0, tk)).fill(1);
  }
  return keep;
}

}  // namespace attn
