// The backward pass's products on bf16 parts: weights and the scores' gradient are split as the operands are, into as
// many parts. Every sum is float32's.
#pragma once

#include "kernels/attention/gradient_tile.hpp"
#include "kernels/bf16/exp2.hpp"
#include "kernels/bf16/pack.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <int Parts>
class MatrixGradient {
 public:
  static constexpr BackwardCut kCut = kGradientCuts[Parts - 1];
  static constexpr int kSpanGroups = kCut.span_groups, kTileKeys = kCut.tile_keys, kStripKeys = kCut.strip_keys;
  static constexpr std::int64_t kKeyStep = kDepthStep, kRowStep = ATTN_UNIT::kRowStep;
  static constexpr int kKeyRows = 2;
  static_assert(kStripKeys % kKeyStep == 0 && kColumns % kKeyStep == 0 && (kKeyStep == 2 || kKeyStep % kRowStep == 0));

  MatrixGradient(const Problem& p, std::int64_t keys, Workspace& take)
      : p_(p), depth_(round_up(p.d, 32)), value_depth_(round_up(p.dv, 32)), key_step_(round_up(keys, 32) + 32) {
    const auto parts = [&](std::int64_t count) { return halves(take, Parts * count); };
    q_ = parts(depth_ * kSpanRows), d_output_ = parts(value_depth_ * kSpanRows);
    q_rows_ = parts(padded(p.d) * kSpanRows), d_output_rows_ = parts(padded(p.dv) * kSpanRows);
    weights_ = parts(kStripKeys * kTileStep), d_scores_ = parts(kStripKeys * kTileStep);
    d_score_pairs_ = parts(kSpanRows * kTileKeys);
    keys_buffer_ = parts(key_step_ * depth_), values_buffer_ = parts(key_step_ * value_depth_);
    transposed_keys_ = parts(round_up(p.d, 16) * key_step_);
  }

  void load_keys(const Span& span, std::int64_t first, std::int64_t count) {
    keys_ = lines(p_.k, p_.d, depth_, span, first, count, keys_buffer_);
    values_ = lines(p_.v, p_.dv, value_depth_, span, first, count, values_buffer_);
    for (std::int64_t j = 0; j < count; j += 32) {
      const void* rows[32];
      for (int i = 0; i < 32; ++i) {
        rows[i] = j + i < count ? row(p_.k, p_.element, span.batch, span.key_head, first + j + i) : nullptr;
      }
      pack_transposed(p_.element, rows, p_.d, {Parts, round_up(p_.d, 16) * key_step_}, transposed_keys_ + j, key_step_);
    }
  }

  void pack_queries(const BackwardInput& in, const Queries& queries) {
    pack_span(queries, p_.q, p_.d, depth_, q_, q_rows_);
    pack_span(queries, in.d_output, p_.dv, value_depth_, d_output_, d_output_rows_);
  }

  void fetch(const PrefetchRows& ahead, std::int64_t keys) {
    if (!kWorksBeside) return;
    ahead_ = ahead;
    ahead_.spread_over(ceil_div(keys, 32) * kProducts * (3 * depth_ + 2 * value_depth_) / 32);
  }

  float products(int group, std::int64_t from, std::int64_t keys, float* s, float* d_weights) {
    const std::int64_t rows = round_up(keys, kRowStep);
    Waiting waiting;
    multiply_in_turn<kProducts, false, Streams::right>(rows, from_line(keys_, from), of_group(q_, depth_, group), s,
                                                       round_up(p_.d, kDepthStep) / 2, ahead_, waiting);
    multiply_in_turn<kProducts, false, Streams::right>(rows, from_line(values_, from),
                                                       of_group(d_output_, value_depth_, group), d_weights,
                                                       round_up(p_.dv, kDepthStep) / 2, ahead_, waiting);
    waiting.finish();
    return query_factor(p_);
  }

  static __attribute__((always_inline)) Vec exp2(Vec x) { return exp2_of<(Parts > 1)>(x); }

  // Weights as they are multiplied from the left; d_scores also from the right, two keys beside each other.
  __attribute__((always_inline)) void put(int group, std::int64_t at, const Vec (&weights)[2][kWidth],
                                          const Vec (&d_scores)[2][kWidth]) const {
    ATTN_UNROLL for (int i = 0; i < 2; ++i) put_row(weights[i], weights_ + corner(group, at + i));
    const auto first = put_row(d_scores[0], d_scores_ + corner(group, at));
    const auto second = put_row(d_scores[1], d_scores_ + corner(group, at + 1));
    ATTN_UNROLL for (int part = 0; part < Parts; ++part) {
      put_pairs(first.part[part], second.part[part], pair_of(group, at) + part * kPairs);
    }
  }

  void put_zeros(int group, std::int64_t at, std::int64_t keys) const {
    const __m512i zero = _mm512_setzero_si512();
    for (std::int64_t j = at; j < at + keys; ++j) {
      for (int part = 0; part < Parts; ++part) {
        _mm512_storeu_si512(weights_ + corner(group, j) + part * kTile, zero);
        _mm512_storeu_si512(d_scores_ + corner(group, j) + part * kTile, zero);
        _mm512_storeu_si512(pair_of(group, j) + part * kPairs, zero);
      }
    }
  }

  void add_dq(int group, std::int64_t from, std::int64_t at, std::int64_t keys, bool fresh, float* dq) {
    const Left left{transposed_keys_ + from, key_step_, round_up(p_.d, 16) * key_step_};
    const Right right{pair_of(group, at), kPairs};
    const std::int64_t rows = round_up(p_.d, kRowStep);
    auto sums = prefetch_sums<kProducts>(dq + 32 * kColumns, rows - 32, keys / 2);
    auto ahead = [&] { sums(), ahead_(); };
    Waiting waiting;
    const auto add = fresh ? multiply_in_turn<kProducts, false, Streams::left, decltype(ahead)>
                           : multiply_in_turn<kProducts, true, Streams::left, decltype(ahead)>;
    add(rows, left, right, dq, keys / 2, ahead, waiting);
    waiting.finish();
  }

  void add_dk(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) {
    add_rows(d_scores_ + corner(groups.begin, at), groups, keys, q_rows_, p_.d, step, out);
  }

  void add_dv(const Groups& groups, std::int64_t at, std::int64_t keys, std::int64_t step, float* out) {
    add_rows(weights_ + corner(groups.begin, at), groups, keys, d_output_rows_, p_.dv, step, out);
  }

 private:
  static constexpr int kProducts = products_of(Parts);
  static constexpr std::int64_t kSpanRows = kSpanGroups * kColumns;
  static constexpr std::int64_t kTileStep = kSpanRows + 32;  // the odd 64 bytes spread rows over the cache
  static constexpr std::int64_t kTile = kStripKeys * kTileStep, kPairs = kTileKeys * kColumns;  // of a part

  static std::int64_t corner(int group, std::int64_t key) { return key % kStripKeys * kTileStep + group * kColumns; }

  std::uint16_t* pair_of(int group, std::int64_t key) const {
    return d_score_pairs_ + (group * Parts * kTileKeys + key) * kColumns;
  }

  static Left from_line(const Left& lines, std::int64_t from) {
    return {lines.data + from * lines.row, lines.row, lines.part};
  }

  static Right of_group(const std::uint16_t* by_group, std::int64_t depth, int group) {
    return {by_group + group * Parts * depth * kColumns, depth * kColumns};
  }

  // Keys or values, in place when their rows are whole, dense pairs.
  Left lines(const Rows& rows, std::int64_t width, std::int64_t depth, const Span& span, std::int64_t first,
             std::int64_t count, std::uint16_t* buffer) const {
    const auto line = [&](std::int64_t j) { return row(rows, p_.element, span.batch, span.key_head, first + j); };
    if (Parts == 1 && p_.element == Element::bf16 && width % kDepthStep == 0 && rows.token == width &&
        count % kKeyStep == 0) {
      return {static_cast<const std::uint16_t*>(line(0)), width, 0};
    }
    for (std::int64_t j = 0; j < round_up(count, kKeyStep); ++j) {
      pack_row(p_.element, j < count ? line(j) : nullptr, width, {Parts, key_step_ * depth}, buffer + j * depth, depth);
    }
    return {buffer, depth, key_step_ * depth};
  }

  // Rows of a span as right operands: by group (Parts, depth / 2, kColumns, 2), and by panel
  // (Parts, kSpanRows / 2, kColumns, 2).
  void pack_span(const Queries& queries, const Rows& from, std::int64_t width, std::int64_t depth,
                 std::uint16_t* by_group, std::uint16_t* by_panel) const {
    for (std::int64_t r = 0; r < queries.groups * kColumns; r += kLanes) {
      const void* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = row_of(p_, from, queries.span, r + i);
      std::uint16_t* columns = by_group + r / kColumns * kColumns * Parts * depth + r % kColumns * 2;
      for (std::int64_t c = 0; c < depth; c += kColumns) {
        pack_square(rows, c, width, columns + c * kColumns, depth * kColumns,
                    by_panel + c * Parts * kSpanRows + r * kColumns);
      }
    }
  }

  // Columns [c, c + kColumns) of 16 rows, split once for both: `columns`, whose parts are `step` apart, and `panel`.
  void pack_square(const void* const (&rows)[kLanes], std::int64_t c, std::int64_t width, std::uint16_t* columns,
                   std::int64_t step, std::uint16_t* panel) const {
    Vec pairs[Parts][kLanes];
    ATTN_UNROLL for (int j = 0; j < kLanes; j += 2) {
      const auto first = load_parts<Parts>(p_.element, rows[j], c, width);
      const auto second = load_parts<Parts>(p_.element, rows[j + 1], c, width);
      ATTN_UNROLL for (int i = 0; i < Parts; ++i) {
        put_pairs(first.part[i], second.part[i], panel + (i * kSpanRows + j) * kColumns);
        pairs[i][j] = reinterpret_cast<Vec>(first.part[i]), pairs[i][j + 1] = reinterpret_cast<Vec>(second.part[i]);
      }
    }
    ATTN_UNROLL for (int i = 0; i < Parts; ++i) put_transposed(pairs[i], columns + i * step, 2 * kColumns);
  }

  // kColumns numbers of a strip, in parts.
  static __attribute__((always_inline)) auto put_row(const Vec (&row)[kWidth], std::uint16_t* out) {
    const auto parts = split<Parts>(row[0], row[1]);
    ATTN_UNROLL for (int i = 0; i < Parts; ++i) _mm512_storeu_si512(out + i * kTile, parts.part[i]);
    return parts;
  }

  // out (keys, panels · kColumns) += tileᵀ · rows
  void add_rows(const std::uint16_t* tile, const Groups& groups, std::int64_t keys, const std::uint16_t* rows,
                std::int64_t width, std::int64_t step, float* out) {
    rows += groups.begin * kColumns * kColumns;
    Waiting waiting;
    for (std::int64_t c = 0; c < width; c += kColumns) {
      float* sums = out + c * step;
      const Right right{rows + c * Parts * kSpanRows, kSpanRows * kColumns};
      auto next = prefetch_sums<kProducts>(sums + step * kColumns, keys, groups.rows() / 2);
      const auto ahead = [&] { next(), ahead_(); };
      multiply_in_turn<kProducts, true, Streams::right>(keys, {tile, kTileStep, kTile}, right, sums, groups.rows() / 2,
                                                        ahead, waiting);
    }
    waiting.finish();
  }

  const Problem& p_;
  std::int64_t depth_, value_depth_, key_step_;
  std::uint16_t *q_, *d_output_;            // by group: the right operands of scores and d_weights
  std::uint16_t *q_rows_, *d_output_rows_;  // by panel: the right operands of dk and dv
  std::uint16_t *weights_, *d_scores_;      // of a strip: (Parts, kStripKeys, kTileStep)
  std::uint16_t* d_score_pairs_;            // by group: (Parts, kTileKeys / 2, kColumns, 2)
  std::uint16_t *keys_buffer_, *values_buffer_;
  std::uint16_t* transposed_keys_;  // (Parts, d made up to a multiple of 16, key_step)
  Left keys_{}, values_{};
  PrefetchRows ahead_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
