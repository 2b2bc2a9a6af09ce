// The backward pass's products in float32: broadcasts of keys, values and tiles against rows of q and d_output.
#pragma once

#include "kernels/attention/gradient_tile.hpp"
#include "kernels/attention/key_rows.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class FloatGradient {
 public:
  static constexpr BackwardCut kCut{4, 96, 96, 1 << 18};
  static constexpr int kSpanGroups = kCut.span_groups, kTileKeys = kCut.tile_keys, kStripKeys = kCut.strip_keys;
  static constexpr std::int64_t kKeyStep = 1, kRowStep = 1;
  static constexpr int kKeyRows = 1;

  FloatGradient(const Problem& p, std::int64_t keys, Workspace& take) : p_(p) {
    const bool widens = p.element != Element::f32;
    q_ = take(padded(p.d) * kSpanRows), d_output_ = take(padded(p.dv) * kSpanRows);
    q_rows_ = take(padded(p.d) * kSpanRows), d_output_rows_ = take(padded(p.dv) * kSpanRows);
    weights_ = take(kStripKeys * kTileStep), d_scores_ = take(kStripKeys * kTileStep);
    keys_buffer_ = take(widens ? keys * p.d : 0), values_buffer_ = take(widens ? keys * p.dv : 0);
    line_ = take(padded(p.d > p.dv ? p.d : p.dv));
  }

  void load_keys(const Span& span, std::int64_t first, std::int64_t count) {
    keys_ = block_of(p_, all_keys(p_), span, first, count, keys_buffer_);
    values_ = block_of(p_, all_values(p_), span, first, count, values_buffer_);
  }

  void pack_queries(const BackwardInput& in, const Queries& queries) {
    for (std::int64_t r = 0; r < queries.groups * kColumns; ++r) {
      to_panels(row_of(p_, p_.q, queries.span, r), p_.d, r, q_rows_);
      to_panels(row_of(p_, in.d_output, queries.span, r), p_.dv, r, d_output_rows_);
    }
    to_lanes(q_rows_, p_.d, queries.groups, query_factor(p_), q_);
    to_lanes(d_output_rows_, p_.dv, queries.groups, 1, d_output_);
  }

  // Beside the tiles of scores and of the weights' gradients against `keys` keys.
  void fetch(const PrefetchRows& ahead, std::int64_t keys) {
    ahead_ = ahead;
    ahead_.spread_over(2 * keys / kRows);
  }

  // The queries were scaled when packed: scores lack nothing.
  float products(int group, std::int64_t from, std::int64_t keys, float* s, float* d_weights) {
    panel<false>(keys, keys_.data + from * keys_.step, keys_.step, 1, q_ + group * padded(p_.d) * kColumns, kColumns, s,
                 kColumns, p_.d, ahead_);
    panel<false>(keys, values_.data + from * values_.step, values_.step, 1,
                 d_output_ + group * padded(p_.dv) * kColumns, kColumns, d_weights, kColumns, p_.dv, ahead_);
    return 1;
  }

  static __attribute__((always_inline)) Vec exp2(Vec x) { return exp2_nonpositive(x); }

  void put(int group, std::int64_t at, const Vec (&weights)[1][kWidth], const Vec (&d_scores)[1][kWidth]) const {
    __builtin_memcpy(weights_ + corner(group, at), weights, sizeof weights);
    __builtin_memcpy(d_scores_ + corner(group, at), d_scores, sizeof d_scores);
  }

  void put_zeros(int group, std::int64_t at, std::int64_t keys) const {
    for (std::int64_t j = at; j < at + keys; ++j) {
      clear(weights_ + corner(group, j), kColumns), clear(d_scores_ + corner(group, j), kColumns);
    }
  }

  void add_dq(int group, std::int64_t from, std::int64_t at, std::int64_t keys, bool fresh, float* dq) const {
    const auto add = fresh ? panel<false> : panel<true>;
    add(p_.d, keys_.data + from * keys_.step, 1, keys_.step, d_scores_ + corner(group, at), kTileStep, dq, kColumns,
        keys);
  }

  void add_dk(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) const {
    add_rows(d_scores_ + corner(groups.begin, at), groups, keys, q_rows_, p_.d, step, out);
  }

  void add_dv(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) const {
    add_rows(weights_ + corner(groups.begin, at), groups, keys, d_output_rows_, p_.dv, step, out);
  }

 private:
  static constexpr int kSpanRows = kSpanGroups * kColumns;
  static constexpr int kTileStep =
      kSpanRows + 16;  // of a wide tile's rows; the odd 64 bytes spread them over the cache

  static std::int64_t corner(int group, std::int64_t key) { return key * kTileStep + group * kColumns; }

  // out (keys, panels · kColumns) += tileᵀ · rows
  static void add_rows(const float* tile, const Groups& groups, std::int64_t keys, const float* rows,
                       std::int64_t width, std::int64_t step, float* out) {
    rows += groups.begin * kColumns * kColumns;
    for (std::int64_t c = 0; c < width; c += kColumns) {
      panel<true>(keys, tile, kTileStep, 1, rows + c * kSpanRows, kColumns, out + c * step, kColumns, groups.rows());
    }
  }

  // A row of `width`, zeros if there is none, to row r of the panels, zeros past its end.
  void to_panels(const void* row, std::int64_t width, std::int64_t r, float* panels) const {
    clear(line_, padded(width));
    if (row) widen(p_.element, row, line_, width);
    for (std::int64_t c = 0; c < width; c += kColumns)
      __builtin_memcpy(panels + c * kSpanRows + r * kColumns, line_ + c, kColumns * sizeof(float));
  }

  // Panels of rows to groups of lanes, times `factor`: out[c · kColumns + lane].
  static void to_lanes(const float* panels, std::int64_t width, int groups, float factor, float* out) {
    for (std::int64_t c = 0; c < padded(width); c += kLanes) {
      const float* panel = panels + c / kColumns * kColumns * kSpanRows + c % kColumns;
      for (std::int64_t r = 0; r < groups * kColumns; r += kLanes) {
        Vec square[kLanes];
        ATTN_UNROLL for (int i = 0; i < kLanes; ++i) square[i] = load(panel + (r + i) * kColumns);
        transpose(square);
        float* group = out + r / kColumns * kColumns * padded(width) + r % kColumns;
        ATTN_UNROLL for (int i = 0; i < kLanes; ++i) store(group + (c + i) * kColumns, square[i] * splat(factor));
      }
    }
  }

  const Problem& p_;
  float *q_, *d_output_;            // by group: (padded width, kColumns), the right operands of scores and d_weights
  float *q_rows_, *d_output_rows_;  // by panel: (kSpanRows, kColumns), the right operands of dk and dv
  float *weights_, *d_scores_;      // (kStripKeys, kTileStep)
  float *keys_buffer_, *values_buffer_, *line_;
  Block keys_{}, values_{};
  PrefetchRows ahead_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
