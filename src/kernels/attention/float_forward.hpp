// The fused forward in float32: broadcasts of keys and values, read in place, against lanes of queries.
#pragma once

#include "kernels/attention/forward.hpp"
#include "kernels/attention/prefetch_block.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class FloatCore {
 public:
  static constexpr int kBlockKeys = 128, kKeyStep = 1, kKeyRows = 1;

  FloatCore(const Problem& p, Workspace& take) : p_(p), ahead_(p) {
    const bool widens = p.element != Element::f32;
    queries_ = take(kGroups * p.d * kColumns);
    keys_buffer_ = take(widens ? kBlockKeys * p.d : 0);
    values_buffer_ = take(widens ? kBlockKeys * p.dv : 0);
    lines_ = take(kLanes * round_up(p.d, kLanes));
  }

  void pack_queries(const Span& span, int group) {
    pack_lanes(p_, p_.q, p_.d, span, group, query_factor(p_), lines_, queries_ + group * p_.d * kColumns);
  }

  void load_block(const Span& span, std::int64_t first, std::int64_t count) {
    keys_ = block_of(p_, p_.k, p_.d, span, first, count, keys_buffer_);
    values_ = block_of(p_, p_.v, p_.dv, span, first, count, values_buffer_);
    ahead_.begin(p_, span, first + kBlockKeys, kBlockKeys);
  }

  float scores(int group, std::int64_t from, std::int64_t keys, float* s) {
    panel<false>(keys, keys_.data + from * keys_.step, keys_.step, 1, queries_ + group * p_.d * kColumns, kColumns, s,
                 kColumns, p_.d, ahead_);
    return 1;  // the queries were scaled when packed
  }

  void store_weights(float* s, std::int64_t j, int w, const Vec (&weights)[kKeyRows]) {
    store(s + j * kColumns + w, weights[0]);
  }

  void keep(float* s, std::int64_t j, int w, VecI kept) {
    float* at = s + j * kColumns + w;
    store(at, where(kept, load(at)));
  }

  // contextᵀ (dv, queries) += vᵀ · weights
  void add_context(std::int64_t from, std::int64_t keys, const float* s, float* context) {
    panel<true>(p_.dv, values_.data + from * values_.step, 1, values_.step, s, kColumns, context, kColumns, keys,
                ahead_);
  }

 private:
  const Problem& p_;
  float *queries_, *keys_buffer_, *values_buffer_, *lines_;
  Block keys_{}, values_{};
  Ahead ahead_;  // the next block
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
