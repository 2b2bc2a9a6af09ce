// Which weights survive dropout: from a mask in memory, or drawn where they are needed.
#pragma once

#include "kernels/attention/mask.hpp"
#include "kernels/simd/philox.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline bool drops(const Problem& p) { return p.dropout.keep.data || p.dropout.threshold; }

// f(j, w, kept) for each key and kLanes lanes: all bits of a lane are set where its weight is kept.
template <class F>
inline void for_each_drawn(const Problem& p, const Span& span, const QueryTile& seen, std::int64_t first_key,
                           std::int64_t keys, F&& f) {
  const VecU threshold = VecU{} + p.dropout.threshold;
  const std::int64_t number = p.labels.key + first_key;
  for (int w = 0; w < kColumns; w += kLanes) {
    const VecU token = reinterpret_cast<VecU>(load(seen.number + w)),
               head = reinterpret_cast<VecU>(load(seen.head_number + w));
    for (std::int64_t quad = number / 4; quad * 4 < number + keys; ++quad) {
      VecU words[4] = {VecU{} + static_cast<std::uint32_t>(quad), token, head,
                       VecU{} + static_cast<std::uint32_t>(p.labels.batch + span.batch)};
      philox(words, p.dropout.key);
      for (int i = 0; i < 4; ++i) {
        const std::int64_t j = quad * 4 + i - number;
        if (j >= 0 && j < keys) f(j, w, static_cast<VecI>(words[i] >= threshold));
      }
    }
  }
}

template <class F>
inline void for_each_kept(const Problem& p, const Span& span, int group, const QueryTile& seen, std::int64_t first_key,
                          std::int64_t keys, F&& f) {
  if (!p.dropout.keep.data) return for_each_drawn(p, span, seen, first_key, keys, f);
  for_each_true(p.dropout.keep, span, group, seen, first_key, keys, f);
}

inline __attribute__((always_inline)) Vec where(VecI mask, Vec v) {
  return reinterpret_cast<Vec>(reinterpret_cast<VecI>(v) & mask);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
