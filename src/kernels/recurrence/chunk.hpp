// The tokens of a chunk together: what they owe each other as small matrices, so that a state is read and written once
// for all of them, by products of matrices. G is the decay summed up in the chunk, E_ij = exp(G_i − G_j) for i >= j.
// All are products of what single tokens keep: no exponential overflows, and a decay of −inf needs no care.
#pragma once

#include "kernels/recurrence/decay.hpp"
#include "kernels/simd/tile.hpp"
#include "kernels/simd/transpose.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kChunk = 32;  // tokens
// With a decay by channel, pairs of tokens are products of matrices where a cut lies between the two: what a token
// keeps from it on, times what is left of a key up to it. Within kWithin tokens, pairs are taken one by one.
constexpr int kWithin = 8;
constexpr struct Cut { int begin, middle, end; } kCuts[] = {{0, 16, 32}, {0, 8, 16}, {16, 24, 32}};
static_assert(kChunk % kColumns == 0);

// A matrix in a task's memory; its rows are whole vectors.
struct Matrix {
  float* data;
  std::int64_t width;
  float* row(std::int64_t i) const { return data + i * width; }
};

// A product's left factor, by rows or, transposed, by columns.
struct LeftFactor {
  const float* data;
  std::int64_t row_step, depth_step;
};
inline LeftFactor by_rows(const Matrix& m) { return {m.data, m.width, 1}; }
inline LeftFactor by_columns(const Matrix& m) { return {m.data, 1, m.width}; }

constexpr std::int64_t kDepthACall = 16;

// c (rows, c.width) (+)= a · b; beside() within each whole tile once in kDepthACall steps of its depth: more lines at
// once than a core can wait for would hold up the products.
template <bool kAccumulate, class... Beside>
inline void multiply(const LeftFactor& a, const Matrix& b, const Matrix& c, std::int64_t rows, std::int64_t depth,
                     Beside&... beside) {
  for (std::int64_t n = 0; n < c.width; n += kColumns)
    panel<kAccumulate, kDepthACall>(rows, a.data, a.row_step, a.depth_step, b.data + n, b.width, c.data + n, c.width,
                                    depth, beside...);
}

// These do the same for a lower triangle of so many rows, and for the upper one that it is by columns.
template <bool kAccumulate>
inline void multiply_lower(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = least_of(kRows, rows - i);
    multiply<kAccumulate>({a.row(i), a.width, 1}, b, {c.row(i), c.width}, count, i + count);
  }
}
template <bool kAccumulate>
inline void multiply_lower_by_columns(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = least_of(kRows, rows - i);
    multiply<kAccumulate>({a.row(i) + i, 1, a.width}, {b.row(i), b.width}, {c.row(i), c.width}, count, rows - i);
  }
}

// Whole vectors of rows and columns: `to` has from's columns as rows.
inline void transpose_to(const Matrix& from, std::int64_t rows, std::int64_t columns, const Matrix& to) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int n = 0; n < kLanes; ++n) square[n] = load(from.row(i + n) + j);
      transpose(square);
      ATTN_UNROLL for (int n = 0; n < kLanes; ++n) store(to.row(j + n) + i, square[n]);
    }
  }
}

// f(column) for each vector of a matrix' rows
template <class F>
inline __attribute__((always_inline)) void each_column(const Matrix& m, F f) {
  const std::int64_t width = m.width;  // a store might change the matrix' own
  for (std::int64_t d = 0; d < width; d += kLanes) f(d);
}

// Unit triangular: x_i −= Σ l_ij y_j over the rows j that come before i, y_i = factor_i x_i; the rows in their order
// with l as it is, or from the last to the first with its transpose.
template <int kVectors>
inline void solve_columns(const Matrix& l, bool reversed, const float* factor, const Matrix& x, const Matrix& y,
                          std::int64_t rows, std::int64_t column) {
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t i = reversed ? rows - 1 - n : n;
    Vec sum[kVectors];
    ATTN_UNROLL for (int w = 0; w < kVectors; ++w) sum[w] = load(x.row(i) + column + w * kLanes);
    for (std::int64_t m = 0; m < n; ++m) {
      const std::int64_t j = reversed ? rows - 1 - m : m;
      const Vec lij = splat(-(reversed ? l.row(j)[i] : l.row(i)[j]));
      ATTN_UNROLL for (int w = 0; w < kVectors; ++w) sum[w] = lij * load(y.row(j) + column + w * kLanes) + sum[w];
    }
    ATTN_UNROLL for (int w = 0; w < kVectors; ++w) {
      store(x.row(i) + column + w * kLanes, sum[w]);
      store(y.row(i) + column + w * kLanes, splat(factor[i]) * sum[w]);
    }
  }
}
inline void solve(const Matrix& l, bool reversed, const float* factor, const Matrix& x, const Matrix& y,
                  std::int64_t rows) {
  std::int64_t column = 0;  // eight sums at once are more than a multiply-add's latency needs
  for (; column + 8 * kLanes <= x.width; column += 8 * kLanes)
    solve_columns<8>(l, reversed, factor, x, y, rows, column);
  for (; column + 4 * kLanes <= x.width; column += 4 * kLanes)
    solve_columns<4>(l, reversed, factor, x, y, rows, column);
  for (; column < x.width; column += kWidth * kLanes) solve_columns<kWidth>(l, reversed, factor, x, y, rows, column);
}

// The tokens of a chunk keep these shares of the state: a number each, or one for each channel.
struct Gains {
  float* data;
  std::int64_t width;  // 0: a number each
  Vec of(std::int64_t i, std::int64_t d) const { return width ? load(data + i * width + d) : splat(data[i]); }
  float number(std::int64_t i, std::int64_t d) const { return width ? data[i * width + d] : data[i]; }
};

// to_i = gains_i · from_i
inline void scale_rows(const Gains gains, const Matrix from, const Matrix to) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const float* in = from.row(i);
    float* out = to.row(i);
    each_column(from, [&](std::int64_t d) { store(out + d, gains.of(i, d) * load(in + d)); });
  }
}

inline VecI lane_numbers() {
  VecI lanes{};
  ATTN_UNROLL for (int n = 0; n < kLanes; ++n) lanes[n] = n;
  return lanes;
}

// m_ij · e_ij below the diagonal, and on it unless `strict`; else 0, chosen, not multiplied: what is later may be NaN.
inline void keep_lower(const Matrix m, const Matrix e, bool by_head, bool strict) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const VecI end = splat(static_cast<std::int32_t>(strict ? i : i + 1));
    each_column(m, [&](std::int64_t j) {
      const Vec x = by_head ? load(m.row(i) + j) * load(e.row(i) + j) : load(m.row(i) + j);
      store(m.row(i) + j, lane_numbers() + static_cast<std::int32_t>(j) < end ? x : splat(0.f));
    });
  }
}

// exp(decay) of each of `tokens` tokens from t on, where decays are by head, and its products up to a token and behind
// it: kChunk numbers each. Of a chunk that ends earlier, later ones are 1.
inline void head_decays(const Recurrence& p, std::int64_t t, std::int64_t tokens, float* kept, float* before,
                        float* after) {
  for (std::int64_t i = 0; i < kChunk; ++i) kept[i] = p.decay && i < tokens ? p.decay[(t + i) * p.decay_step] : 0;
  for (std::int64_t i = 0; i < kChunk; i += kLanes) store(kept + i, exp_decay(load(kept + i)));
  float up_to = 1, behind = 1;
  for (std::int64_t i = 0; i < kChunk; ++i) {
    before[i] = up_to *= kept[i];
    after[kChunk - 1 - i] = behind;
    behind *= kept[kChunk - 1 - i];
  }
}

// The inputs of a chunk, and what follows from them without a state. Queries and keys lie one after the other, and so
// does what is made of each: one product serves both.
class Chunk {
 public:
  Chunk(const Recurrence& p, Workspace& memory)
      : k_width(round_up(p.d_k, kColumns)),
        v_width(round_up(p.d_v, kColumns)),
        p_(p),
        q(rows(memory, k_width, 2)),
        k(second(q)),
        v(rows(memory, v_width)),
        kept(gains(memory)),
        kept_before(gains(memory)),
        kept_after(gains(memory)),
        read_q(rows(memory, k_width, 2)),
        read_k(second(read_q)),
        written_k(rows(memory, k_width)),
        qk(rows(memory, kChunk, 2)),
        l(second(qk)),
        e(rows(memory, kChunk)),
        turned_{memory(k_width * kChunk), kChunk},
        scaled_(rows(memory, by_channel() ? k_width : 0)),
        kept_from_cut_(rows(memory, by_channel() ? k_width : 0)),
        pairs_(rows(memory, kChunk)) {}

  static Matrix rows(Workspace& memory, std::int64_t width, int chunks = 1) {
    return {memory(chunks * kChunk * width), width};
  }
  static Matrix second(const Matrix& m) { return {m.row(kChunk), m.width}; }

  void load_tokens(std::int64_t first, std::int64_t count) {
    t = first, tokens = count;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      take(p_.k, i, p_.d_k, k), take(p_.v, i, p_.d_v, v);
      beta[i] = i < tokens && p_.beta ? p_.beta[(t + i) * p_.beta_step] : 1;
    }
    by_channel() ? decays_by_channel() : decays_by_head();
    scale_rows(kept_before, k, read_k);
    scale_rows(kept_after, k, written_k);
  }

  // Loads the queries of the tokens that are loaded, and scales them.
  void load_queries() {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      take(p_.q, i, p_.d_k, q);
      each_column(q, [&](std::int64_t d) { store(q.row(i) + d, load(q.row(i) + d) * splat(p_.scale)); });
    }
    scale_rows(kept_before, q, read_q);
    pairs(q, qk, false);
  }

  // Makes l.
  void pair_keys() { pairs(k, l, true); }

  bool by_channel() const { return p_.decay && p_.by_channel; }
  // exp(G) of the whole chunk, for a row of the state.
  float kept_in_all(std::int64_t d) const { return kept_before.number(kChunk - 1, d); }

  const std::int64_t k_width, v_width;
  std::int64_t t = 0, tokens = 0;
  float beta[kChunk];

 private:
  const Recurrence& p_;

 public:
  const Matrix q, k, v;
  const Gains kept;                     // exp(decay) of each token
  const Gains kept_before, kept_after;  // exp(G_i) and exp(G_last − G_j)
  const Matrix read_q, read_k;          // exp(G_i) q_i and exp(G_i) k_i: what they read of the state before the chunk
  const Matrix written_k;               // exp(G_last − G_j) k_j: what is left of a write after the chunk
  const Matrix qk;                      // Σ q_i E_ij k_j for i >= j, else 0
  const Matrix l;                       // Σ k_i E_ij k_j for i > j, else 0
  const Matrix e;                       // E_ij where the decay is by head

 private:
  Gains gains(Workspace& memory) const {
    return by_channel() ? Gains{memory(kChunk * k_width), k_width} : Gains{memory(kChunk), 0};
  }

  void take(const TokenRows& from, std::int64_t i, std::int64_t n, const Matrix& to) const {
    widen_token(from, p_.element, t + least_of(i, tokens - 1), 0, i < tokens ? n : 0, to.width, to.row(i));
  }

  void decays_by_head() { head_decays(p_, t, tokens, kept.data, kept_before.data, kept_after.data); }

  void decays_by_channel() {
    for (std::int64_t d = 0; d < k_width; d += kLanes) {
      const auto count = static_cast<int>(least_of(kLanes, p_.d_k - d));
      Vec before = splat(1.f), after = before;
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const Vec here = i < tokens && count > 0 ? kernels::ATTN_UNIT::kept(p_, t + i, d, count) : splat(1.f);
        store(kept.data + i * k_width + d, here);
        store(kept_before.data + i * k_width + d, before = before * here);
      }
      for (std::int64_t i = kChunk - 1; i >= 0; --i) {
        store(kept_after.data + i * k_width + d, after);
        after = after * kept.of(i, d);
      }
    }
  }

  // to_ij = Σ x_i E_ij k_j
  void pairs(const Matrix& x, const Matrix& to, bool strict) {
    if (by_channel()) return pairs_by_channel(x, to, strict);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      each_column(e, [&](std::int64_t j) {
        const VecI column = lane_numbers() + static_cast<std::int32_t>(j), here = splat(static_cast<std::int32_t>(i));
        const Vec earlier = i == 0 ? splat(0.f) : load(e.row(i - 1) + j) * splat(kept.data[i]);
        store(e.row(i) + j, column == here ? splat(1.f) : column < here ? earlier : splat(0.f));
      });
    }
    transpose_to(k, kChunk, k_width, turned_);
    multiply<false>(by_rows(x), turned_, to, kChunk, p_.d_k);
    keep_lower(to, e, true, strict);
  }

  void pairs_by_channel(const Matrix& x, const Matrix& to, bool strict) {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      each_column(to, [&](std::int64_t j) { store(to.row(i) + j, splat(0.f)); });
    }
    for (std::int64_t j = 0; j < kChunk; ++j) pairs_within(x, j, to, strict);
    for (const Cut& cut : kCuts) {
      keep_from(cut);
      for (std::int64_t j = 0; j < kChunk; ++j) {  // keys of other columns would be of no use
        const bool here = j >= cut.begin && j < cut.middle;
        each_column(k, [&](std::int64_t d) {
          store(scaled_.row(j) + d, here ? load(kept_from_cut_.row(j) + d) * load(k.row(j) + d) : splat(0.f));
        });
      }
      transpose_to(scaled_, kChunk, k_width, turned_);
      scale_from_cut(x, cut.middle, cut.end, scaled_);
      multiply<false>({scaled_.row(cut.middle), k_width, 1}, turned_, pairs_, cut.end - cut.middle, p_.d_k);
      for (std::int64_t i = cut.middle; i < cut.end; ++i) {
        for (std::int64_t j = cut.begin; j < cut.middle; ++j) to.row(i)[j] = pairs_.row(i - cut.middle)[j];
      }
    }
  }

  // A key with the tokens from it to the end of its kWithin.
  void pairs_within(const Matrix& x, std::int64_t j, const Matrix& to, bool strict) {
    float* key = turned_.data;  // E_ij k_j
    for (std::int64_t i = j; i < round_up(j + 1, kWithin); ++i) {
      Vec sum = splat(0.f);
      each_column(k, [&](std::int64_t d) {
        const Vec kj = i == j ? load(k.row(j) + d) : load(key + d) * kept.of(i, d);
        store(key + d, kj);
        sum = load(x.row(i) + d) * kj + sum;
      });
      if (i > j || !strict) to.row(i)[j] = sum_lanes(sum);
    }
  }

 public:
  // Computes what is kept from each token before a cut up to it, and from it to each token behind.
  void keep_from(const Cut& cut) {
    each_column(k, [&](std::int64_t d) {
      Vec g = splat(1.f);
      for (std::int64_t j = cut.middle - 1; j >= cut.begin; --j) {
        store(kept_from_cut_.row(j) + d, g);
        g = g * kept.of(j, d);
      }
      g = splat(1.f);
      for (std::int64_t i = cut.middle; i < cut.end; ++i) store(kept_from_cut_.row(i) + d, g = g * kept.of(i, d));
    });
  }

  // Scales rows [first, end) of `from` by what is kept from or up to the cut, into the same rows of `to`.
  void scale_from_cut(const Matrix& from, std::int64_t first, std::int64_t end, const Matrix& to) const {
    for (std::int64_t i = first; i < end; ++i) {
      each_column(
          from, [&](std::int64_t d) { store(to.row(i) + d, load(kept_from_cut_.row(i) + d) * load(from.row(i) + d)); });
    }
  }

  const Matrix& kept_from_cut() const { return kept_from_cut_; }

 private:
  const Matrix turned_, scaled_, kept_from_cut_, pairs_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
