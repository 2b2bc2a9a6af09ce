// Decode with elements widened to float32 in registers: the core for whatever is stored.
#pragma once

#include "kernels/attention/decode.hpp"
#include "kernels/attention/decode_products.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <class E>
class FloatDecode {
 public:
  static constexpr bool kScaled = E::kBytes == 1;  // rows have scales

  FloatDecode(const Problem& p, Workspace& take) : rows_(rows_per_key_head(p)), keys_(p.d), values_(p.dv) {
    constexpr std::int64_t kNarrow = kStepKeys * E::kSpan * E::kBytes / 4;
    queries_ = take(rows_ * keys_.floats());
    contexts_ = take(rows_ * values_.floats());
    narrow_keys_ = reinterpret_cast<char*>(take(keys_.narrow() ? kNarrow : 0));
    narrow_values_ = reinterpret_cast<char*>(take(values_.narrow() ? kNarrow : 0));
  }

  template <class Query>
  void start(Query&& query) {
    for (std::int64_t c = 0; c < rows_ * values_.floats(); c += kLanes) store(contexts_ + c, splat(0.f));
    by_fours(rows_, [&]<int Count>(std::int64_t r) {
      float* packed = queries_ + r * keys_.floats();
      for (int i = 0; i < Count; ++i) keys_.pack(query(r + i), packed + i * kLanes, Count * kLanes);
    });
  }

  void scores(const Units& keys, float* s) {
    if (keys_.narrow()) copy_narrow(keys_, keys.rows, keys.count * kUnitKeys, narrow_keys_);
    for_blocks(keys, [&]<int Count>(std::int64_t r, const Units& block) {
      score_keys<E, Count>(queries_ + r * keys_.floats(), keys_, block, r == 0, s + r * kStepKeys);
    });
  }

  void add_values(const float* w, const Units& values) {
    if (values_.narrow()) copy_narrow(values_, values.rows, values.count * kUnitKeys, narrow_values_);
    for_blocks(values, [&]<int Count>(std::int64_t r, const Units& block) {
      add_block<E, Count>(w + r * kStepKeys, values_, block, r == 0, context(r));
    });
  }

  void shrink(std::int64_t r, float factor) {
    for (std::int64_t c = 0; c < values_.floats(); c += kLanes) {
      store(context(r) + c, load(context(r) + c) * splat(factor));
    }
  }

  void finish(std::int64_t r, float* out) const { values_.unpack(context(r), out); }

 private:
  float* context(std::int64_t r) const { return contexts_ + r * values_.floats(); }

  // Calls f<Count>(r, block) for each block and Count queries from r on.
  template <class F>
  void for_blocks(const Units& units, F&& f) {
    for (std::int64_t u = 0; u < units.count; u += kStreams) {
      by_fours(rows_, [&]<int Count>(std::int64_t r) { f.template operator()<Count>(r, units.block(u)); });
    }
  }

  std::int64_t rows_;
  Loads<E> keys_, values_;
  float *queries_, *contexts_;
  char *narrow_keys_, *narrow_values_;
};

// Calls f with an E{} of what is stored.
template <class F>
inline decltype(auto) with_stored(const Problem& p, F&& f) {
  switch (p.pages ? p.pages->element : p.element) {
    case Element::bf16:
      return f(StoredBf16{});
    case Element::f16:
      return f(StoredF16{});
    case Element::i8:
      return f(StoredI8{});
    case Element::f32:
      break;
  }
  return f(StoredF32{});
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
