// The backward pass's products on bf16: weights and the scores' gradient are rounded to bf16, every sum is float32's.
#pragma once

#include "kernels/matrix/chain.hpp"
#include "kernels/matrix/core.hpp"
#include "kernels/unit/gradient_tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class MatrixGradient {
 public:
  static constexpr std::int64_t kKeyStep = kDepthStep, kRowStep = ATTN_UNIT::kRowStep;
  static constexpr int kKeyRows = 2;
  static_assert(kStripKeys % kKeyStep == 0 && kColumns % kKeyStep == 0 && (kKeyStep == 2 || kKeyStep % kRowStep == 0));

  MatrixGradient(const Problem& p, std::int64_t keys, Carver& take)
      : p_(p), depth_(round_up(p.d, 32)), value_depth_(round_up(p.dv, 32)), key_step_(round_up(keys, 32) + 32) {
    q_ = halves(take, depth_ * kSpanRows), d_output_ = halves(take, value_depth_ * kSpanRows);
    q_rows_ = halves(take, padded(p.d) * kSpanRows), d_output_rows_ = halves(take, padded(p.dv) * kSpanRows);
    weights_ = halves(take, kStripKeys * kTileStep), d_scores_ = halves(take, kStripKeys * kTileStep);
    d_score_pairs_ = halves(take, kSpanGroups * kTileKeys * kColumns);
    keys_buffer_ = halves(take, key_step_ * depth_), values_buffer_ = halves(take, key_step_ * value_depth_);
    transposed_keys_ = halves(take, round_up(p.d, 16) * key_step_);
  }

  void load_keys(const Span& span, std::int64_t first, std::int64_t count) {
    keys_ = lines(p_.k, p_.d, depth_, span, first, count, keys_buffer_);
    values_ = lines(p_.v, p_.dv, value_depth_, span, first, count, values_buffer_);
    for (std::int64_t j = 0; j < count; j += 32) {
      const void* rows[32];
      for (int i = 0; i < 32; ++i) {
        rows[i] = j + i < count ? row(p_.k, p_.element, span.batch, span.key_head, first + j + i) : nullptr;
      }
      pack_transposed(p_.element, rows, p_.d, kOnePart, transposed_keys_ + j, key_step_);
    }
  }

  void pack_queries(const BackwardInput& in, const Queries& queries) {
    pack_span(queries, p_.q, p_.d, depth_, q_, q_rows_);
    pack_span(queries, in.d_output, p_.dv, value_depth_, d_output_, d_output_rows_);
  }

  float products(int group, std::int64_t from, std::int64_t keys, float* s, float* d_weights) const {
    const std::int64_t rows = round_up(keys, kRowStep);
    Chain chain;
    chain.add<false, Passes::right>(rows, from_line(keys_, from), {q_ + group * depth_ * kColumns, 0}, s,
                                    round_up(p_.d, kDepthStep) / 2, d_weights);
    chain.add<false, Passes::right>(rows, from_line(values_, from), {d_output_ + group * value_depth_ * kColumns, 0},
                                    d_weights, round_up(p_.dv, kDepthStep) / 2, s);
    chain.finish();
    return query_factor(p_);
  }

  static __attribute__((always_inline)) Vec exp2(Vec x) { return exp2_of<false>(x); }

  // Weights as they are multiplied from the left; d_scores also from the right, two keys beside each other.
  __attribute__((always_inline)) void put(int group, std::int64_t at, const Vec (&weights)[2][kWidth],
                                          const Vec (&d_scores)[2][kWidth]) const {
    ATTN_UNROLL for (int i = 0; i < 2; ++i) put_row(weights[i], weights_ + corner(group, at + i));
    const __m512i first = put_row(d_scores[0], d_scores_ + corner(group, at));
    const __m512i second = put_row(d_scores[1], d_scores_ + corner(group, at + 1));
    put_pairs(first, second, pair_of(group, at));
  }

  void forget(int group, std::int64_t at, std::int64_t keys) const {
    for (std::int64_t j = at; j < at + keys; ++j) {
      _mm512_storeu_si512(weights_ + corner(group, j), _mm512_setzero_si512());
      _mm512_storeu_si512(d_scores_ + corner(group, j), _mm512_setzero_si512());
      _mm512_storeu_si512(pair_of(group, j), _mm512_setzero_si512());
    }
  }

  void add_dq(int group, std::int64_t from, std::int64_t at, std::int64_t keys, bool fresh, float* dq) const {
    Chain chain;
    const Left left{transposed_keys_ + from, key_step_, 0};
    const Right right{pair_of(group, at), 0};
    const std::int64_t rows = round_up(p_.d, kRowStep);
    const float* next = dq + rows * kColumns;
    fresh ? chain.add<false, Passes::left>(rows, left, right, dq, keys / 2, next)
          : chain.add<true, Passes::left>(rows, left, right, dq, keys / 2, next);
    chain.finish();
  }

  void add_dk(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) const {
    add_rows(d_scores_ + corner(groups.begin, at), groups, keys, q_rows_, p_.d, step, out);
  }

  void add_dv(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) const {
    add_rows(weights_ + corner(groups.begin, at), groups, keys, d_output_rows_, p_.dv, step, out);
  }

 private:
  static constexpr int kTileStep =
      kSpanRows + 32;  // of a wide tile's rows; the odd 64 bytes spread them over the cache

  static std::int64_t corner(int group, std::int64_t key) { return key % kStripKeys * kTileStep + group * kColumns; }

  std::uint16_t* pair_of(int group, std::int64_t key) const {
    return d_score_pairs_ + (group * kTileKeys + key) * kColumns;
  }

  static Left from_line(const Left& lines, std::int64_t from) { return {lines.data + from * lines.row, lines.row, 0}; }

  // Keys or values, in place when their rows are whole, dense pairs.
  Left lines(const Rows& rows, std::int64_t width, std::int64_t depth, const Span& span, std::int64_t first,
             std::int64_t count, std::uint16_t* buffer) const {
    const auto line = [&](std::int64_t j) { return row(rows, p_.element, span.batch, span.key_head, first + j); };
    if (p_.element == Element::bf16 && width % kDepthStep == 0 && rows.token == width && count % kKeyStep == 0) {
      return {static_cast<const std::uint16_t*>(line(0)), width, 0};
    }
    for (std::int64_t j = 0; j < round_up(count, kKeyStep); ++j) {
      pack_row(p_.element, j < count ? line(j) : nullptr, width, kOnePart, buffer + j * depth, depth);
    }
    return {buffer, depth, 0};
  }

  // Rows of a span as right operands: by group (depth / 2, kColumns, 2), and by panel
  // (kSpanRows / 2, kColumns, 2).
  void pack_span(const Queries& queries, const Rows& from, std::int64_t width, std::int64_t depth,
                 std::uint16_t* by_group, std::uint16_t* by_panel) const {
    for (std::int64_t r = 0; r < queries.groups * kColumns; r += kLanes) {
      const void* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = row_of(p_, from, queries.span, r + i);
      pack_columns(p_.element, rows, width, 1, kOnePart, by_group + r / kColumns * kColumns * depth + r % kColumns * 2,
                   depth);
      for (int i = 0; i < kLanes; i += 2) {
        for (std::int64_t c = 0; c < width; c += kColumns) {
          std::uint16_t* pairs = by_panel + c * kSpanRows + (r + i) * kColumns;
          if (p_.element == Element::bf16 && rows[i + 1] && c + kColumns <= width) {
            put_pairs(load_row(rows[i], c), load_row(rows[i + 1], c), pairs);
          } else {
            pack_pair(p_.element, rows[i], rows[i + 1], c, width, kOnePart, pairs);
          }
        }
      }
    }
  }

  // kColumns numbers in bf16.
  static __attribute__((always_inline)) __m512i put_row(const Vec (&row)[kWidth], std::uint16_t* out) {
    const auto both = reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(row[1]), reinterpret_cast<__m512>(row[0])));
    _mm512_storeu_si512(out, both);
    return both;
  }

  static __m512i load_row(const void* row, std::int64_t at) {
    return _mm512_loadu_si512(static_cast<const std::uint16_t*>(row) + at);
  }

  // out (keys, panels · kColumns) += tileᵀ · rows
  static void add_rows(const std::uint16_t* tile, const Groups& groups, std::int64_t keys, const std::uint16_t* rows,
                       std::int64_t width, std::int64_t step, float* out) {
    rows += groups.begin * kColumns * kColumns;
    Chain chain;
    for (std::int64_t c = 0; c < width; c += kColumns) {
      float* sums = out + c * step;
      chain.add<true, Passes::right>(keys, {tile, kTileStep, 0}, {rows + c * kSpanRows, 0}, sums, groups.rows() / 2,
                                     sums + step * kColumns);
    }
    chain.finish();
  }

  const Problem& p_;
  std::int64_t depth_, value_depth_, key_step_;
  std::uint16_t *q_, *d_output_;            // by group: the right operands of scores and d_weights
  std::uint16_t *q_rows_, *d_output_rows_;  // by panel: the right operands of dk and dv
  std::uint16_t *weights_, *d_scores_;      // of a strip: (kStripKeys, kTileStep)
  std::uint16_t* d_score_pairs_;            // by group: (kTileKeys / 2, kColumns, 2)
  std::uint16_t *keys_buffer_, *values_buffer_;
  std::uint16_t* transposed_keys_;  // (d made up to a multiple of 16, key_step)
  Left keys_{}, values_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
