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
static_assert(kChunk % kColumns == 0);

// A matrix in a task's memory; its rows are whole vectors.
struct Matrix {
  float* data;
  std::int64_t width;
  float* row(std::int64_t i) const { return data + i * width; }
};

// A product's left factor, by rows or, transposed, by columns.
struct Left {
  const float* data;
  std::int64_t row_step, depth_step;
};
inline Left by_rows(const Matrix& m) { return {m.data, m.width, 1}; }
inline Left by_columns(const Matrix& m) { return {m.data, 1, m.width}; }

// c (rows, c.width) (+)= a · b
template <bool kAccumulate>
inline void multiply(const Left& a, const Matrix& b, const Matrix& c, std::int64_t rows, std::int64_t depth) {
  for (std::int64_t n = 0; n < c.width; n += kColumns)
    panel<kAccumulate>(rows, a.data, a.row_step, a.depth_step, b.data + n, b.width, c.data + n, c.width, depth);
}

// The same for a lower triangle of so many rows, and for the upper one that it is by columns.
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
  for (std::int64_t d = 0; d < m.width; d += kLanes) f(d);
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
  std::int64_t column = 0;
  for (; column + 4 * kLanes <= x.width; column += 4 * kLanes)
    solve_columns<4>(l, reversed, factor, x, y, rows, column);
  for (; column < x.width; column += kWidth * kLanes) solve_columns<kWidth>(l, reversed, factor, x, y, rows, column);
}

// The inputs of a chunk, and what follows from them without a state.
class Chunk {
 public:
  Chunk(const Recurrence& p, Workspace& memory)
      : k_width(round_up(p.d_k, kColumns)),
        v_width(round_up(p.d_v, kColumns)),
        p_(p),
        q(rows(memory, k_width)),
        k(rows(memory, k_width)),
        v(rows(memory, v_width)),
        kept_(rows(memory, k_width)),
        read_q(rows(memory, k_width)),
        read_k(rows(memory, k_width)),
        written_k(rows(memory, k_width)),
        l(rows(memory, kChunk)),
        qk(rows(memory, kChunk)),
        e(rows(memory, kChunk)),
        turned_{memory(k_width * kChunk), kChunk},
        run_{memory(k_width), k_width} {}

  static Matrix rows(Workspace& memory, std::int64_t width) { return {memory(kChunk * width), width}; }

  // q is scaled. `with_queries`: read_q and qk, too.
  void load_tokens(std::int64_t first, std::int64_t count, bool with_queries) {
    t = first, tokens = count;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      take(p_.k, i, p_.d_k, k), take(p_.v, i, p_.d_v, v);
      if (with_queries) take(p_.q, i, p_.d_k, q);
      beta[i] = i < tokens && p_.beta ? p_.beta[(t + i) * p_.beta_step] : 1;
    }
    if (with_queries) scale_rows(q, splat(p_.scale));
    decays();
    if (with_queries) sum_reads(q, read_q);
    sum_reads(k, read_k);
    sum_writes();
    p_.decay&& p_.by_channel ? pairs_by_channel(with_queries) : pairs_by_head(with_queries);
  }

  bool by_channel() const { return p_.decay && p_.by_channel; }
  const Matrix& kept_by_token() const { return kept_; }
  // exp(G) of the whole chunk, a number for each row of the state.
  const float* kept_in_all() const { return run_.data; }

  const std::int64_t k_width, v_width;
  std::int64_t t = 0, tokens = 0;
  float beta[kChunk];

 private:
  const Recurrence& p_;

 public:
  const Matrix q, k, v;

 private:
  const Matrix kept_;  // exp(decay) of each token

 public:
  const Matrix read_q, read_k;  // exp(G_i) q_i and exp(G_i) k_i: what they read of the state before the chunk
  const Matrix written_k;       // exp(G_last − G_j) k_j: what is left of a write after the chunk
  const Matrix l;               // Σ k_i E_ij k_j for i > j, else 0
  const Matrix qk;              // Σ q_i E_ij k_j for i >= j, else 0
  const Matrix e;               // E_ij where the decay is by head

 private:
  void take(const TokenRows& from, std::int64_t i, std::int64_t n, const Matrix& to) const {
    widen_token(from, p_.element, t + least_of(i, tokens - 1), 0, i < tokens ? n : 0, to.width, to.row(i));
  }

  static void scale_rows(const Matrix& m, Vec factor) {
    for (std::int64_t i = 0; i < kChunk; ++i)
      each_column(m, [&](std::int64_t d) { store(m.row(i) + d, load(m.row(i) + d) * factor); });
  }

  void decays() {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      each_column(kept_, [&](std::int64_t d) {
        const std::int64_t count = least_of(kLanes, p_.d_k - d);
        store(kept_.row(i) + d, i < tokens && count > 0 ? kept(p_, t + i, d, static_cast<int>(count)) : splat(1.f));
      });
    }
  }

  void sum_reads(const Matrix& from, const Matrix& to) {
    each_column(from, [&](std::int64_t d) {
      Vec g = splat(1.f);
      for (std::int64_t i = 0; i < kChunk; ++i) {
        g = g * load(kept_.row(i) + d);
        store(to.row(i) + d, g * load(from.row(i) + d));
      }
      store(run_.data + d, g);
    });
  }

  void sum_writes() {
    each_column(k, [&](std::int64_t d) {
      Vec g = splat(1.f);
      for (std::int64_t i = kChunk - 1; i >= 0; --i) {
        store(written_k.row(i) + d, g * load(k.row(i) + d));
        g = g * load(kept_.row(i) + d);
      }
    });
  }

  void pairs_by_head(bool with_queries) {
    for (std::int64_t j = 0; j < kChunk; ++j) {
      float g = 1;
      for (std::int64_t i = 0; i < kChunk; ++i) {
        if (i > j) g *= kept_.row(i)[0];
        e.row(i)[j] = i < j ? 0 : g;
      }
    }
    transpose_to(k, kChunk, k_width, turned_);
    multiply<false>(by_rows(k), turned_, l, kChunk, p_.d_k);
    if (with_queries) multiply<false>(by_rows(q), turned_, qk, kChunk, p_.d_k);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      for (std::int64_t j = 0; j < kChunk; ++j) {  // chosen, not multiplied: what is later may be NaN
        l.row(i)[j] = j < i ? l.row(i)[j] * e.row(i)[j] : 0;
        if (with_queries) qk.row(i)[j] = j <= i ? qk.row(i)[j] * e.row(i)[j] : 0;
      }
    }
  }

  void pairs_by_channel(bool with_queries) {
    float* key = turned_.data;  // E_ij k_j
    for (std::int64_t j = 0; j < kChunk; ++j) {
      for (std::int64_t i = 0; i < j; ++i) l.row(i)[j] = qk.row(i)[j] = 0;
      for (std::int64_t i = j; i < kChunk; ++i) {
        Vec of_k = splat(0.f), of_q = splat(0.f);
        each_column(k, [&](std::int64_t d) {
          const Vec kj = i == j ? load(k.row(j) + d) : load(key + d) * load(kept_.row(i) + d);
          store(key + d, kj);
          of_k = load(k.row(i) + d) * kj + of_k;
          if (with_queries) of_q = load(q.row(i) + d) * kj + of_q;
        });
        l.row(i)[j] = i == j ? 0 : sum_lanes(of_k);
        if (with_queries) qk.row(i)[j] = sum_lanes(of_q);
      }
    }
  }

  const Matrix turned_, run_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
