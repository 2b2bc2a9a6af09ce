// The gradients of a recurrence, by chunks from the last to the first. `h` is the gradient of the state after a chunk.
//   r = v − read_k S − L δ, δ = beta r              e = dδ − Lᵀ dv, dv = beta e, dbeta = e · r
//   o = read_q S + QK δ                             dδ = QKᵀ do + written_k H
//   S' = exp(G) S + written_kᵀ δ                    dS = exp(G) H + read_qᵀ do − read_kᵀ dv
// The gradient of decays is in decay_gradient.hpp.
#pragma once

#include "kernels/prefetch.hpp"
#include "kernels/recurrence/decay_gradient.hpp"

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
        pairs_of_keys_(memory(segment_ * kChunk * kChunk)),
        h_(state(memory(size_))),
        d_output_(Chunk::rows(memory, chunk_.v_width, 2)),
        delta_(Chunk::rows(memory, chunk_.v_width)),
        e_(Chunk::rows(memory, chunk_.v_width)),
        dv_(Chunk::rows(memory, chunk_.v_width)),
        minus_dv_(Chunk::second(d_output_)),
        turned_(memory(2 * chunk_.v_width * kChunk)),
        tall_(memory(2 * chunk_.k_width * kChunk)),
        d_qk_(Chunk::rows(memory, kChunk, 2)),
        d_l_(Chunk::second(d_qk_)),
        dq_(Chunk::rows(memory, chunk_.k_width, 2)),
        dk_read_(Chunk::second(dq_)),
        dk_written_(Chunk::rows(memory, chunk_.k_width)),
        cut_(Chunk::rows(memory, chunk_.by_channel() ? chunk_.k_width : 0, 2)),
        decays_(p, chunk_, memory) {}

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
    if (g.d_initial) put_rows(h_, p_.d_k, p_.d_v, true, g.d_initial);
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

  static void put(Vec x, bool add, float* to, int count) { store_some(to, add ? load_some(to, count) + x : x, count); }

  // to (rows, columns) = m, or += m
  static void put_rows(const Matrix m, std::int64_t rows, std::int64_t columns, bool add, float* to) {
    for (std::int64_t i = 0; i < rows; ++i) {
      each_vector(columns, [&](std::int64_t c, int count) {
        put(load_some(m.row(i) + c, count), add, to + i * columns + c, count);
      });
    }
  }

  void load_chunk(std::int64_t chunk) {
    const std::int64_t t = chunk * kChunk;
    chunk_.load_tokens(t, least_of(kChunk, p_.tokens - t));
  }

  Matrix pairs_of_keys(std::int64_t n) const { return {pairs_of_keys_ + n * kChunk * kChunk, kChunk}; }
  static void copy_pairs(const Matrix& from, const Matrix& to) {
    __builtin_memcpy(to.data, from.data, kChunk * kChunk * sizeof(float));
  }

  // Begins to bring to L2, beside this chunk's products, what the next one of a segment reads and writes.
  void fetch_forward(std::int64_t chunk, std::int64_t n) {
    soon_ = {};
    fetch_tokens(p_.k, p_.d_k, chunk + 1), fetch_tokens(p_.v, p_.d_v, chunk + 1);
    fetch_floats(states_ + least_of(n + 2, segment_) * size_, size_);
    soon_.spread_over(calls_of(2));
  }

  void fetch_backward(std::int64_t chunk, std::int64_t n, const RecurrenceGradient& g) {
    soon_ = {};
    const std::int64_t t = chunk * kChunk;
    fetch_floats(g.dv + t * p_.d_v, chunk_.tokens * p_.d_v);
    fetch_floats(g.dq + t * p_.d_k, chunk_.tokens * p_.d_k), fetch_floats(g.dk + t * p_.d_k, chunk_.tokens * p_.d_k);
    if (n > 0) {
      fetch_tokens(p_.k, p_.d_k, chunk - 1), fetch_tokens(p_.v, p_.d_v, chunk - 1);
      fetch_tokens(p_.q, p_.d_k, chunk - 1), fetch_tokens(g.d_output, p_.d_v, chunk - 1);
      fetch_floats(states_ + (n - 1) * size_, size_);
      fetch_floats(residual_of(n - 1).data, kChunk * chunk_.v_width);
    }
    soon_.spread_over(calls_of(6));
  }

  void fetch_tokens(const TokenRows& rows, std::int64_t width, std::int64_t chunk) {
    const std::int64_t bytes = element_bytes(p_.element), t = chunk * kChunk;
    soon_.add(static_cast<const char*>(rows.data) + t * rows.step * bytes, rows.step * bytes,
              least_of(kChunk, p_.tokens - t), width * bytes);
  }
  void fetch_floats(const float* from, std::int64_t count) {
    soon_.add(reinterpret_cast<const char*>(from), 0, 1, count * 4);
  }

  // to = exp(G) · from
  void decay_state(const Matrix from, const Matrix to) const {
    for (std::int64_t d = 0; d < p_.d_k; ++d) {
      const Vec g = splat(chunk_.kept_in_all(d));
      const float* in = from.row(d);
      float* out = to.row(d);
      each_column(from, [&](std::int64_t c) { store(out + c, g * load(in + c)); });
    }
  }

  // The states and residuals of a segment.
  void forward(std::int64_t s) {
    copy(state(starts_ + s * size_), state_of(0));
    for (std::int64_t n = 0; n < chunks_of(s); ++n) {
      load_chunk(s * segment_ + n);
      fetch_forward(s * segment_ + n, n);
      const Matrix r = residual_of(n), before = state_of(n), after = state_of(n + 1);
      for (std::int64_t i = 0; i < kChunk; ++i)
        __builtin_memcpy(r.row(i), chunk_.v.row(i), static_cast<std::size_t>(r.width) * sizeof(float));
      if (p_.delta) {
        chunk_.pair_keys();
        copy_pairs(chunk_.l, pairs_of_keys(n));
        multiply<false>(by_rows(chunk_.read_k), before, delta_, chunk_.tokens, p_.d_k, soon_);
        for (std::int64_t i = 0; i < chunk_.tokens; ++i)
          each_column(r, [&](std::int64_t c) { store(r.row(i) + c, load(r.row(i) + c) - load(delta_.row(i) + c)); });
        solve(chunk_.l, false, chunk_.beta, r, delta_, chunk_.tokens);
      }
      decay_state(before, after);
      multiply<true>(by_columns(chunk_.written_k), p_.delta ? delta_ : r, after, p_.d_k, chunk_.tokens, soon_);
    }
  }

  void backward(std::int64_t chunk, std::int64_t n, const RecurrenceGradient& g) {
    load_chunk(chunk);
    chunk_.load_queries();
    if (p_.delta) copy_pairs(pairs_of_keys(n), chunk_.l);
    fetch_backward(chunk, n, g);
    const std::int64_t tokens = chunk_.tokens, t = chunk_.t;
    const Matrix r = residual_of(n);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const std::int64_t from = t + least_of(i, tokens - 1);
      widen_token(g.d_output, p_.element, from, 0, i < tokens ? p_.d_v : 0, d_output_.width, d_output_.row(i));
      each_column(r, [&](std::int64_t c) { store(delta_.row(i) + c, splat(chunk_.beta[i]) * load(r.row(i) + c)); });
    }
    multiply_lower_by_columns<false>(chunk_.qk, d_output_, e_, tokens);
    multiply<true>(by_rows(chunk_.written_k), h_, e_, tokens, p_.d_k, soon_);
    if (p_.delta) {
      solve(chunk_.l, true, chunk_.beta, e_, dv_, tokens);
      put_rows(dv_, tokens, p_.d_v, g.add, g.dv + t * p_.d_v);
      if (g.d_beta) add_beta(r, g.d_beta + t);
    } else {
      put_rows(e_, tokens, p_.d_v, g.add, g.dv + t * p_.d_v);
    }
    of_states(n, tokens);
    if (g.d_decay) decays_.take_states(state_of(n), h_, dq_, dk_read_, dk_written_);
    if (g.d_decay && !p_.by_channel) decays_.take_pairs(d_qk_, d_l_);
    keep_lower(d_qk_, chunk_.e, !chunk_.by_channel(), false);
    keep_lower(d_l_, chunk_.e, !chunk_.by_channel(), true);
    of_pairs();
    if (g.d_decay) decays_.add_to(g.d_decay + t * (p_.by_channel ? p_.d_k : 1));
    put_keys(g.dq + t * p_.d_k, g.add, g.dk + t * p_.d_k);
    decay_state(h_, h_);
    multiply<true>(by_columns(chunk_.read_q), d_output_, h_, p_.d_k, readers(), soon_);
  }

  // Rows of queries, and with the delta rule of keys, that read a state.
  std::int64_t readers() const { return p_.delta ? 2 * kChunk : kChunk; }

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

  // m (count, k_width) = (s · rowsᵀ)ᵀ. Leaves rowsᵀ in turned_.
  void against_state(const Matrix& s, const Matrix& rows, const Matrix& m, std::int64_t count) {
    const Matrix turned{turned_, count}, tall{tall_, count};
    transpose_to(rows, count, rows.width, turned);
    multiply<false>(by_rows(s), turned, tall, p_.d_k, p_.d_v, soon_);
    for (std::int64_t i = p_.d_k * count; i < chunk_.k_width * count; ++i) tall.data[i] = 0;
    transpose_to(tall, chunk_.k_width, count, m);
  }

  // Applies to rows the state before the chunk and the gradient of that after it; and d_qk = do · δ, d_l = −dv · δ.
  void of_states(std::int64_t n, std::int64_t tokens) {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      each_column(delta_, [&](std::int64_t c) {
        if (i >= tokens) store(delta_.row(i) + c, splat(0.f));
        store(minus_dv_.row(i) + c, p_.delta && i < tokens ? -load(dv_.row(i) + c) : splat(0.f));
      });
    }
    against_state(state_of(n), d_output_, dq_, readers());
    scale_rows(chunk_.kept_before, dq_, dq_);
    if (p_.delta) {
      scale_rows(chunk_.kept_before, dk_read_, dk_read_);
    } else {
      for (std::int64_t i = 0; i < kChunk * chunk_.k_width; ++i) dk_read_.data[i] = 0;
    }
    against_state(h_, delta_, dk_written_, kChunk);
    scale_rows(chunk_.kept_after, dk_written_, dk_written_);
    multiply<false>(by_rows(d_output_), {turned_, kChunk}, d_qk_, 2 * kChunk, p_.d_v);
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
    decays_.clear_pairs();
    each_column(dq_, [&](std::int64_t d) {
      for (std::int64_t first = 0; first < kChunk; first += kWithin) {
        of_earlier_keys(first, d);
        of_later_tokens(first, d);
      }
    });
    for (const Cut& cut : kCuts) of_pairs_across(cut);
  }

  // Adds for each of kWithin tokens what it takes from keys up to its own, which decays between the two act on.
  void of_earlier_keys(std::int64_t first, std::int64_t d) const {
    Vec key[kWithin] = {}, across[kWithin] = {};
    ATTN_UNROLL for (int i = 0; i < kWithin; ++i) {
      const float *of_q = d_qk_.row(first + i) + first, *of_k = d_l_.row(first + i) + first;
      const Vec own_q = load(chunk_.q.row(first + i) + d), own_k = load(chunk_.k.row(first + i) + d);
      float *q = dq_.row(first + i) + d, *k = dk_read_.row(first + i) + d;
      const Vec kept = chunk_.kept.of(first + i, d);
      Vec dq = load(q), dk = load(k), pairs = splat(0.f);
      ATTN_UNROLL for (int j = 0; j < kWithin; ++j) {
        if (j > i) continue;
        key[j] = j == i ? load(chunk_.k.row(first + i) + d) : key[j] * kept;
        dq = splat(of_q[j]) * key[j] + dq;
        dk = splat(of_k[j]) * key[j] + dk;
        if (j == i) continue;
        pairs = (splat(of_q[j]) * own_q + splat(of_k[j]) * own_k) * key[j] + pairs;
        across[j + 1] += pairs;
      }
      store(q, dq), store(k, dk);
    }
    ATTN_UNROLL for (int i = 0; i < kWithin; ++i) {
      float* const to = decays_.pairs.row(first + i) + d;
      store(to, load(to) + across[i]);
    }
  }

  // Adds for each of these keys what the tokens from it on take from it.
  void of_later_tokens(std::int64_t first, std::int64_t d) const {
    Vec sum[kWithin] = {};
    ATTN_UNROLL for (int n = 0; n < kWithin; ++n) {
      const int i = kWithin - 1 - n;
      const float *of_q = d_qk_.row(first + i) + first, *of_k = d_l_.row(first + i) + first;
      const Vec q = load(chunk_.q.row(first + i) + d), k = load(chunk_.k.row(first + i) + d);
      const Vec kept = chunk_.kept.of(first + i, d);
      ATTN_UNROLL for (int j = 0; j < kWithin; ++j) {
        if (j > i) continue;
        sum[j] = splat(of_k[j]) * k + (splat(of_q[j]) * q + sum[j]);
        if (j < i) sum[j] = sum[j] * kept;
      }
    }
    ATTN_UNROLL for (int j = 0; j < kWithin; ++j) {
      float* to = dk_written_.row(first + j) + d;
      store(to, sum[j] + load(to));
    }
  }

  // The pairs of tokens between which a cut lies.
  void of_pairs_across(const Cut& cut) {
    const Matrix summed = Chunk::second(cut_);
    const std::int64_t keys = cut.middle - cut.begin, readers = cut.end - cut.middle;
    const auto add = [&](const LeftFactor& d, std::int64_t first, std::int64_t count, const Matrix& to,
                         const Matrix& own) {
      multiply<false>(d, {cut_.row(cut.begin), cut_.width}, summed, count, keys);
      add_from_cut(summed, first, count, to, own, true);
    };
    chunk_.keep_from(cut);
    chunk_.scale_from_cut(chunk_.k, cut.begin, cut.middle, cut_);
    add({d_qk_.row(cut.middle) + cut.begin, kChunk, 1}, cut.middle, readers, dq_, chunk_.q);
    add({d_l_.row(cut.middle) + cut.begin, kChunk, 1}, cut.middle, readers, dk_read_, chunk_.k);
    chunk_.scale_from_cut(chunk_.q, cut.middle, cut.end, cut_);
    multiply<false>({d_qk_.row(cut.middle) + cut.begin, 1, kChunk}, {cut_.row(cut.middle), cut_.width}, summed, keys,
                    readers);
    chunk_.scale_from_cut(chunk_.k, cut.middle, cut.end, cut_);
    multiply<true>({d_l_.row(cut.middle) + cut.begin, 1, kChunk}, {cut_.row(cut.middle), cut_.width}, summed, keys,
                   readers);
    add_from_cut(summed, cut.begin, keys, dk_written_, chunk_.k, false);
  }

  // Rows [first, first + count) of `to` += what is kept from the cut · rows. These times `own` are what decays act on:
  // where tokens read, those of a token and of all before it; where they wrote, those of all tokens behind.
  void add_from_cut(const Matrix& rows, std::int64_t first, std::int64_t count, const Matrix& to, const Matrix& own,
                    bool are_readers) const {
    each_column(to, [&](std::int64_t d) {
      Vec sum = splat(0.f);
      for (std::int64_t n = 0; n < count; ++n) {
        const std::int64_t i = are_readers ? count - 1 - n : n;
        const Vec kept = load(chunk_.kept_from_cut().row(first + i) + d), x = load(rows.row(i) + d);
        float *const at = to.row(first + i) + d, *const across = decays_.pairs.row(first + i) + d;
        const Vec product = kept * x * load(own.row(first + i) + d);
        store(at, kept * x + load(at));
        if (are_readers) sum += product;
        store(across, load(across) + sum);
        if (!are_readers) sum += product;
      }
    });
  }

  void put_keys(float* dq, bool add, float* dk) const {
    for (std::int64_t i = 0; i < chunk_.tokens; ++i) {
      each_vector(p_.d_k, [&](std::int64_t d, int count) {
        const Vec q = load_some(dq_.row(i) + d, count), read = load_some(dk_read_.row(i) + d, count);
        store_some(dq + i * p_.d_k + d, splat(p_.scale) * q, count);
        put(read + load_some(dk_written_.row(i) + d, count), add, dk + i * p_.d_k + d, count);
      });
    }
  }

  // How often panel() calls what it is given in so many products of a chunk's rows with a state, but for the last rows.
  std::int64_t calls_of(int products) const {
    return products * (kChunk / kRows * kRows) * size_ / (kRows * kColumns * kDepthACall);
  }

  const Recurrence& p_;
  const std::int64_t chunks_, segment_, segments_;
  Chunk chunk_;
  const std::int64_t size_;
  float *const starts_, *const states_, *const residuals_, *const pairs_of_keys_;
  const Matrix h_, d_output_, delta_, e_, dv_, minus_dv_;
  float *const turned_, *const tall_;
  const Matrix d_qk_, d_l_, dq_, dk_read_, dk_written_, cut_;
  DecayGradient decays_;
  PrefetchRows soon_;
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
