// The gradients of a recurrence, by chunks from the last to the first. `h` is the gradient of the state after a chunk.
//   r = v − read_k S − L δ, δ = beta r              e = dδ − Lᵀ dv, dv = beta e, dbeta = e · r
//   o = read_q S + QK δ                             dδ = QKᵀ do + written_k H
//   S' = exp(G) S + written_kᵀ δ                    dS = exp(G) H + read_qᵀ do − read_kᵀ dv
// and from what was read and written, dG = q dq + k dk_read − k dk_written, with S' · H on the last token.
#pragma once

#include "kernels/recurrence/chunk.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class BackwardChunks {
 public:
  BackwardChunks(const Recurrence& p, std::int64_t segment, Workspace& memory)
      : p_(p),
        chunks_(ceil_div(p.tokens, kChunk)),
        segment_(least_of(segment, chunks_ > 0 ? chunks_ : 1)),
        segments_(ceil_div(chunks_, segment_)),
        chunk_(p, memory),
        size_(chunk_.k_width * chunk_.v_width),
        starts_(memory(segments_ * size_)),
        states_(memory((segment_ + 1) * size_)),
        residuals_(memory(segment_ * kChunk * chunk_.v_width)),
        h_(state(memory(size_))),
        d_output_(Chunk::rows(memory, chunk_.v_width)),
        delta_(Chunk::rows(memory, chunk_.v_width)),
        e_(Chunk::rows(memory, chunk_.v_width)),
        dv_(Chunk::rows(memory, chunk_.v_width)),
        minus_dv_(Chunk::rows(memory, chunk_.v_width)),
        turned_{memory(chunk_.v_width * kChunk), kChunk},
        tall_{memory(chunk_.k_width * kChunk), kChunk},
        d_qk_(Chunk::rows(memory, kChunk)),
        d_l_(Chunk::rows(memory, kChunk)),
        dq_(Chunk::rows(memory, chunk_.k_width)),
        dk_read_(Chunk::rows(memory, chunk_.k_width)),
        dk_written_(Chunk::rows(memory, chunk_.k_width)),
        end_(memory(chunk_.k_width)) {}

  void run(const RecurrenceGradient& g) {
    load_state(g.d_state, h_);
    load_state(p_.initial, state(starts_));
    for (std::int64_t s = 0; s + 1 < segments_; ++s) {  // the states that segments begin with
      forward(s);
      copy(state_of(segment_), state(starts_ + (s + 1) * size_));
    }
    for (std::int64_t s = segments_ - 1; s >= 0; --s) {
      forward(s);
      for (std::int64_t n = chunks_of(s) - 1; n >= 0; --n) backward(s * segment_ + n, n, g);
    }
    if (g.d_initial) add_rows(h_, p_.d_k, p_.d_v, g.d_initial);
  }

 private:
  Matrix state(float* data) const { return {data, chunk_.v_width}; }
  Matrix state_of(std::int64_t n) const { return state(states_ + n * size_); }
  Matrix residual_of(std::int64_t n) const { return {residuals_ + n * kChunk * chunk_.v_width, chunk_.v_width}; }
  std::int64_t chunks_of(std::int64_t s) const { return least_of(segment_, chunks_ - s * segment_); }

  void copy(const Matrix& from, const Matrix& to) const {
    __builtin_memcpy(to.data, from.data, static_cast<std::size_t>(size_) * sizeof(float));
  }

  void load_state(const float* from, const Matrix& to) const {
    for (std::int64_t i = 0; i < size_; ++i) to.data[i] = 0;
    for (std::int64_t d = 0; from && d < p_.d_k; ++d) {
      for (std::int64_t c = 0; c < p_.d_v; ++c) to.row(d)[c] = from[d * p_.d_v + c];
    }
  }

  // to (rows, columns) += m
  static void add_rows(const Matrix& m, std::int64_t rows, std::int64_t columns, float* to) {
    for (std::int64_t i = 0; i < rows; ++i) {
      each_vector(columns, [&](std::int64_t c, int count) {
        store_some(to + i * columns + c, load_some(to + i * columns + c, count) + load_some(m.row(i) + c, count),
                   count);
      });
    }
  }

  void load_chunk(std::int64_t chunk, bool with_queries) {
    const std::int64_t t = chunk * kChunk;
    chunk_.load_tokens(t, least_of(kChunk, p_.tokens - t), with_queries);
  }

  // to = exp(G) · from
  void decay_state(const Matrix& from, const Matrix& to) const {
    for (std::int64_t d = 0; d < p_.d_k; ++d) {
      const Vec g = splat(chunk_.kept_in_all()[d]);
      each_column(from, [&](std::int64_t c) { store(to.row(d) + c, g * load(from.row(d) + c)); });
    }
  }

  // The states and residuals of a segment.
  void forward(std::int64_t s) {
    copy(state(starts_ + s * size_), state_of(0));
    for (std::int64_t n = 0; n < chunks_of(s); ++n) {
      load_chunk(s * segment_ + n, false);
      const Matrix r = residual_of(n), before = state_of(n), after = state_of(n + 1);
      for (std::int64_t i = 0; i < kChunk; ++i)
        __builtin_memcpy(r.row(i), chunk_.v.row(i), static_cast<std::size_t>(r.width) * sizeof(float));
      if (p_.delta) {
        multiply<false>(by_rows(chunk_.read_k), before, delta_, chunk_.tokens, p_.d_k);
        for (std::int64_t i = 0; i < chunk_.tokens; ++i)
          each_column(r, [&](std::int64_t c) { store(r.row(i) + c, load(r.row(i) + c) - load(delta_.row(i) + c)); });
        solve(chunk_.l, false, chunk_.beta, r, delta_, chunk_.tokens);
      }
      decay_state(before, after);
      multiply<true>(by_columns(chunk_.written_k), p_.delta ? delta_ : r, after, p_.d_k, chunk_.tokens);
    }
  }

  void backward(std::int64_t chunk, std::int64_t n, const RecurrenceGradient& g) {
    load_chunk(chunk, true);
    const std::int64_t tokens = chunk_.tokens, t = chunk_.t;
    const Matrix r = residual_of(n);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const std::int64_t from = t + least_of(i, tokens - 1);
      widen_token(g.d_output, p_.element, from, 0, i < tokens ? p_.d_v : 0, d_output_.width, d_output_.row(i));
      each_column(r, [&](std::int64_t c) { store(delta_.row(i) + c, splat(chunk_.beta[i]) * load(r.row(i) + c)); });
    }
    multiply_lower_by_columns<false>(chunk_.qk, d_output_, e_, tokens);
    multiply<true>(by_rows(chunk_.written_k), h_, e_, tokens, p_.d_k);
    if (p_.delta) {
      solve(chunk_.l, true, chunk_.beta, e_, dv_, tokens);
      add_rows(dv_, tokens, p_.d_v, g.dv + t * p_.d_v);
      if (g.d_beta) add_beta(r, g.d_beta + t);
    } else {
      add_rows(e_, tokens, p_.d_v, g.dv + t * p_.d_v);
    }
    of_states(n, tokens);
    of_pairs();
    if (g.d_decay) add_decay(g.d_decay + t * (p_.by_channel ? p_.d_k : 1));
    add_keys(g.dq + t * p_.d_k, g.dk + t * p_.d_k);
    decay_state(h_, h_);
    multiply<true>(by_columns(chunk_.read_q), d_output_, h_, p_.d_k, tokens);
    if (p_.delta) multiply<true>(by_columns(chunk_.read_k), minus_dv_, h_, p_.d_k, tokens);
  }

  // dbeta = e · r
  void add_beta(const Matrix& r, float* d_beta) const {
    for (std::int64_t i = 0; i < chunk_.tokens; ++i) {
      Vec sum = splat(0.f);
      each_vector(p_.d_v, [&](std::int64_t c, int count) {
        sum += load_some(e_.row(i) + c, count) * load_some(r.row(i) + c, count);
      });
      d_beta[i] += sum_lanes(sum);
    }
  }

  // m (kChunk, k_width) = (s · rowsᵀ)ᵀ, of which each row d is decayed as `read` was. Leaves rowsᵀ in turned_.
  void against_state(const Matrix& s, const Matrix& rows, const Matrix& m) {
    transpose_to(rows, kChunk, rows.width, turned_);
    multiply<false>(by_rows(s), turned_, tall_, p_.d_k, p_.d_v);
    transpose_to(tall_, chunk_.k_width, kChunk, m);
  }

  // What the state before the chunk, and the gradient of that after it, make of rows; and d_qk = do · δ, d_l = −dv · δ.
  void of_states(std::int64_t n, std::int64_t tokens) {
    for (std::int64_t i = p_.d_k * kChunk; i < chunk_.k_width * kChunk; ++i) tall_.data[i] = 0;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      each_column(delta_, [&](std::int64_t c) {
        if (i >= tokens) store(delta_.row(i) + c, splat(0.f));
        store(minus_dv_.row(i) + c, p_.delta && i < tokens ? -load(dv_.row(i) + c) : splat(0.f));
      });
    }
    against_state(state_of(n), d_output_, dq_);
    decay_rows(dq_, false);
    if (p_.delta) {
      against_state(state_of(n), minus_dv_, dk_read_);
      decay_rows(dk_read_, false);
    } else {
      for (std::int64_t i = 0; i < kChunk * chunk_.k_width; ++i) dk_read_.data[i] = 0;
    }
    sum_end(state_of(n + 1));
    against_state(h_, delta_, dk_written_);
    decay_rows(dk_written_, true);
    multiply<false>(by_rows(d_output_), turned_, d_qk_, kChunk, p_.d_v);
    multiply<false>(by_rows(minus_dv_), turned_, d_l_, kChunk, p_.d_v);
    const bool by_head = !chunk_.by_channel();
    for (std::int64_t i = 0; i < kChunk; ++i) {
      for (std::int64_t j = 0; j < kChunk; ++j) {
        const float e = by_head ? chunk_.e.row(i)[j] : 1;
        d_qk_.row(i)[j] = j <= i ? d_qk_.row(i)[j] * e : 0;
        d_l_.row(i)[j] = j < i ? d_l_.row(i)[j] * e : 0;
      }
    }
  }

  // m_i · exp(G_i), or m_j · exp(G_last − G_j)
  void decay_rows(const Matrix& m, bool written) const {
    each_column(m, [&](std::int64_t d) {
      Vec g = splat(1.f);
      for (std::int64_t n = 0; n < kChunk; ++n) {
        const std::int64_t i = written ? kChunk - 1 - n : n;
        const Vec kept = load(chunk_.kept_by_token().row(i) + d);
        if (!written) g = g * kept;
        store(m.row(i) + d, g * load(m.row(i) + d));
        if (written) g = g * kept;
      }
    });
  }

  // S' · H, of each row
  void sum_end(const Matrix& after) {
    for (std::int64_t d = 0; d < chunk_.k_width; ++d) {
      Vec sum = splat(0.f);
      if (p_.decay && d < p_.d_k)
        each_column(after, [&](std::int64_t c) { sum = load(after.row(d) + c) * load(h_.row(d) + c) + sum; });
      end_[d] = sum_lanes(sum);
    }
  }

  // dq_i += Σ d_qk_ij E_ij k_j; dk_i += Σ d_l_ij E_ij k_j as a reader; dk_j += Σ E_ij (d_qk_ij q_i + d_l_ij k_i)
  void of_pairs() {
    if (chunk_.by_channel()) return of_pairs_by_channel();
    multiply_lower<true>(d_qk_, chunk_.k, dq_, kChunk);
    multiply_lower_by_columns<true>(d_qk_, chunk_.q, dk_written_, kChunk);
    if (!p_.delta) return;
    multiply_lower<true>(d_l_, chunk_.k, dk_read_, kChunk);
    multiply_lower_by_columns<true>(d_l_, chunk_.k, dk_written_, kChunk);
  }

  void of_pairs_by_channel() {
    const Matrix& kept = chunk_.kept_by_token();
    each_column(dq_, [&](std::int64_t d) {
      for (std::int64_t j = 0; j < kChunk; ++j) {
        Vec key = load(chunk_.k.row(j) + d);
        for (std::int64_t i = j; i < kChunk; ++i) {
          if (i > j) key = key * load(kept.row(i) + d);
          store(dq_.row(i) + d, splat(d_qk_.row(i)[j]) * key + load(dq_.row(i) + d));
          store(dk_read_.row(i) + d, splat(d_l_.row(i)[j]) * key + load(dk_read_.row(i) + d));
        }
        Vec sum = splat(0.f);
        for (std::int64_t i = kChunk - 1; i >= j; --i) {
          sum = splat(d_qk_.row(i)[j]) * load(chunk_.q.row(i) + d) + sum;
          sum = splat(d_l_.row(i)[j]) * load(chunk_.k.row(i) + d) + sum;
          if (i > j) sum = sum * load(kept.row(i) + d);
        }
        store(dk_written_.row(j) + d, sum + load(dk_written_.row(j) + d));
      }
    });
  }

  // d_decay_t = Σ dG over the tokens from t on; nothing where nothing was kept.
  void add_decay(float* d_decay) {
    for (std::int64_t d = 0; d < chunk_.k_width; d += kLanes) {
      Vec sum = load(end_ + d);
      for (std::int64_t i = chunk_.tokens - 1; i >= 0; --i) {
        sum += load(chunk_.q.row(i) + d) * load(dq_.row(i) + d) +
               load(chunk_.k.row(i) + d) * (load(dk_read_.row(i) + d) - load(dk_written_.row(i) + d));
        const Vec kept = load(chunk_.kept_by_token().row(i) + d);
        const Vec here = kept == splat(0.f) ? splat(0.f) : sum;
        const std::int64_t count = least_of(kLanes, p_.d_k - d);
        float lane[kLanes];
        store(lane, here);
        for (std::int64_t n = 0; n < count; ++n) d_decay[p_.by_channel ? i * p_.d_k + d + n : i] += lane[n];
      }
    }
  }

  void add_keys(float* dq, float* dk) const {
    for (std::int64_t i = 0; i < chunk_.tokens; ++i) {
      each_vector(p_.d_k, [&](std::int64_t d, int count) {
        const Vec q = load_some(dq_.row(i) + d, count), read = load_some(dk_read_.row(i) + d, count);
        float *to_q = dq + i * p_.d_k + d, *to_k = dk + i * p_.d_k + d;
        store_some(to_q, splat(p_.scale) * q + load_some(to_q, count), count);
        store_some(to_k, load_some(to_k, count) + (read + load_some(dk_written_.row(i) + d, count)), count);
      });
    }
  }

  const Recurrence& p_;
  const std::int64_t chunks_, segment_, segments_;
  Chunk chunk_;
  const std::int64_t size_;
  float *const starts_, *const states_, *const residuals_;
  const Matrix h_, d_output_, delta_, e_, dv_, minus_dv_, turned_, tall_, d_qk_, d_l_, dq_, dk_read_, dk_written_;
  float* const end_;
};

inline std::size_t backward_scratch(const Recurrence& p, std::int64_t segment) {
  return bytes_of<BackwardChunks>(p, segment);
}

inline void backward_chunks(const Recurrence& p, const RecurrenceGradient& g, std::int64_t segment, void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  BackwardChunks(p, segment, memory).run(g);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
