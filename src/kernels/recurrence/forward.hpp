// A recurrence by tokens. The columns of a state do not know of each other: a panel of them stays in L1 while the
// tokens of a chunk pass over it, two in a sweep, with columns across the lanes. A sweep applies what one pair of
// tokens writes and reads the state for the next pair. With the state S before a pair, decays a and writes δ,
//   S' = a2 a1 S + a2 k1 δ1ᵀ + k2 δ2ᵀ
//   o1 = (a1 q1)ᵀ S + (q1·k1) δ1,     o2 = (a2 a1 q2)ᵀ S + (q2·a2 k1) δ1 + (q2·k2) δ2
//   δ1 = β1 (v1 − (a1 k1)ᵀ S),        δ2 = β2 (v2 − (a2 a1 k2)ᵀ S − (k2·a2 k1) δ1)
// so that the products of S are 3.5 multiply-adds a token and number of S. What keys and queries owe each other is
// packed once for all panels.
#pragma once

#include "kernels/prefetch.hpp"
#include "kernels/recurrence/decay.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

#if defined(__aarch64__)
constexpr int kPanelWidth = 4;
#else
constexpr int kPanelWidth = 2;
#endif
constexpr int kPanel = kPanelWidth * kLanes;  // columns
constexpr int kPairs = 16;                    // of a chunk
constexpr std::int64_t kStateRows = 16;       // that are packed side by side
// Panels that a chunk's pairs pass over in turns: what one waits for at the end of its sweep is done beside the next
// one's. They leave room in an L1 of 32 KB.
constexpr std::int64_t kMostTogether = 4, kTogetherBytes = 16 << 10;

// For each kStateRows rows of the state: of writes a2 a1, a2 k1 and k2; of reads a1 k1, a2 a1 k2, a1 q1 and a2 a1 q2.
constexpr int kWrites = 3, kReads = 4;

// Two tokens, or the last one.
struct Pair {
  int tokens;
  float k2_k1, q1_k1, q2_k1, q2_k2;
  float *write, *read;
};

struct PanelVectors {
  Vec of[2][kPanelWidth];  // a token's
};

// One pass over a panel: applies the writes `delta` of kWrite tokens, and sums k and q of kRead tokens with it.
template <bool kDelta, int kWrite, int kRead>
inline void sweep(float* state, std::int64_t rows, const float* write, const float* read, const PanelVectors& delta,
                  PanelVectors& recall, PanelVectors& out) {
  Vec d[2][kPanelWidth], x[2][kPanelWidth], y[2][kPanelWidth];
  ATTN_UNROLL for (int i = 0; i < 2; ++i) {
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      d[i][w] = delta.of[i][w], x[i][w] = splat(0.f), y[i][w] = splat(0.f);
    }
  }
  const auto row = [&](std::int64_t i) __attribute__((always_inline)) {
    // A number serves all vectors before the next is read: each read anew for each would hold up the multiply-adds.
    float* at = state + i * kPanel;
    Vec s[kPanelWidth];
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = load(at + w * kLanes);
    if constexpr (kWrite > 0) {
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = splat(write[i]) * s[w];
      ATTN_UNROLL for (int n = 0; n < kWrite; ++n) {
        const Vec key = splat(write[(n + 1) * kStateRows + i]);
        ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = multiply_add(key, d[n][w], s[w]);
      }
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) store(at + w * kLanes, s[w]);
    }
    ATTN_UNROLL for (int n = 0; n < kRead; ++n) {
      const Vec key = splat(read[n * kStateRows + i]), query = splat(read[(n + 2) * kStateRows + i]);
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
        if constexpr (kDelta) x[n][w] = multiply_add(key, s[w], x[n][w]);
        y[n][w] = multiply_add(query, s[w], y[n][w]);
      }
    }
  };
  std::int64_t left = rows;
  for (; left >= kStateRows; left -= kStateRows) {
    _Pragma("GCC unroll 4") for (std::int64_t i = 0; i < kStateRows; ++i) row(i);
    state += kStateRows * kPanel, write += kWrites * kStateRows, read += kReads * kStateRows;
  }
  for (std::int64_t i = 0; i < left; ++i) row(i);
  ATTN_UNROLL for (int i = 0; i < 2; ++i) {
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) recall.of[i][w] = x[i][w], out.of[i][w] = y[i][w];
  }
}

// One token alone reads the state where it lies and writes it where it goes, kStateRows rows at a time, which memory
// hands out one after the other. Sums over rows have the order that they have in a sweep.
constexpr int kStepWidth = 4;  // vectors

// recall and out, sums over columns so far, += what k and q read of some rows; of one vector only `count` columns.
template <bool kDelta, int kVectors>
inline void read_rows(const float* state, std::int64_t step, int count, const float* read, std::int64_t rows,
                      float* recall, float* out) {
  Vec x[kVectors], y[kVectors];
  ATTN_UNROLL for (int w = 0; w < kVectors; ++w) x[w] = load(recall + w * kLanes), y[w] = load(out + w * kLanes);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Vec key = splat(read[i]), query = splat(read[2 * kStateRows + i]);
    ATTN_UNROLL for (int w = 0; w < kVectors; ++w) {
      const Vec s = kVectors == 1 ? load_some(state + i * step, count) : load(state + i * step + w * kLanes);
      if constexpr (kDelta) x[w] = multiply_add(key, s, x[w]);
      y[w] = multiply_add(query, s, y[w]);
    }
  }
  ATTN_UNROLL for (int w = 0; w < kVectors; ++w) store(recall + w * kLanes, x[w]), store(out + w * kLanes, y[w]);
}

template <int kVectors>
inline void write_rows(const float* from, float* to, std::int64_t step, int count, const float* write,
                       std::int64_t rows, const float* delta) {
  Vec d[kVectors];
  ATTN_UNROLL for (int w = 0; w < kVectors; ++w) d[w] = load(delta + w * kLanes);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Vec kept = splat(write[i]), key = splat(write[kStateRows + i]);
    ATTN_UNROLL for (int w = 0; w < kVectors; ++w) {
      Vec s = kVectors == 1 ? load_some(from + i * step, count) : load(from + i * step + w * kLanes);
      s = multiply_add(key, d[w], kept * s);
      if constexpr (kVectors == 1) {
        store_some(to + i * step, s, count);
      } else {
        store(to + i * step + w * kLanes, s);
      }
    }
  }
}

// What is brought to L2 beside a chunk of `tokens` from t on: the tokens of the next one, and the place where these
// tokens' outputs go; of values and outputs columns [first, first + columns).
inline PrefetchRows rows_ahead(const Recurrence& p, const RecurrenceResult& result, std::int64_t first,
                               std::int64_t columns, std::int64_t t, int tokens) {
  const std::int64_t next = t + tokens, count = least_of(2 * kPairs, p.tokens - next);
  const std::int64_t bytes = element_bytes(p.element);
  PrefetchRows soon;
  const auto add = [&](const void* rows, std::int64_t step, std::int64_t size, std::int64_t at, std::int64_t many,
                       std::int64_t width) {
    soon.add(static_cast<const char*>(rows) + at * step * size, step * size, many, width * size);
  };
  add(p.q.data, p.q.step, bytes, next, count, p.d_k), add(p.k.data, p.k.step, bytes, next, count, p.d_k);
  add(element_at(p.v.data, p.element, first), p.v.step, bytes, next, count, columns);
  if (p.decay && p.by_channel) add(p.decay, p.decay_step, 4, next, count, p.d_k);
  add(element_at(result.output, p.element, first), result.step, bytes, t, tokens, columns);
  return soon;
}

// Some panels of a head.
class ForwardPanels {
 public:
  ForwardPanels(const Recurrence& p, std::int64_t first, std::int64_t panels, Workspace& memory)
      : p_(p),
        first_(first * kPanel),
        panels_(panels),
        columns_(least_of(panels * kPanel, p.d_v - first * kPanel)),
        blocks_(ceil_div(p.d_k, kStateRows)),
        state_(memory(panels * (p.d_k < 2 ? 2 : p.d_k) * kPanel)),
        v_(memory(2 * kPairs * panels * kPanel)),
        packed_(memory(kPairs * blocks_ * (kWrites + kReads) * kStateRows)) {
    const std::int64_t fit = kTogetherBytes / (p.d_k * kPanel * 4);
    together_ = fit < 1 ? 1 : least_of(fit, kMostTogether);
  }

  void run(const RecurrenceResult& result) {
    begin();
    for (std::int64_t t = 0; t < p_.tokens; t += 2 * kPairs) {
      const int tokens = static_cast<int>(least_of(2 * kPairs, p_.tokens - t));
      pack(t, tokens);
      soon_ = rows_ahead(p_, result, first_, columns_, t, tokens);
      soon_.spread_over(panels_ * ((tokens + 1) / 2));
      for (std::int64_t panel = 0; panel < panels_; panel += together_) {
        const std::int64_t count = least_of(together_, panels_ - panel);
        p_.delta ? pass<true>(panel, count, tokens) : pass<false>(panel, count, tokens);
      }
      put_outputs(result, t, tokens);
    }
    if (result.state) end(result.state);
  }

  // Does the same for one token that goes on from a state.
  void run_step(const RecurrenceResult& result) { p_.delta ? step<true>(result) : step<false>(result); }

 private:
  // Values have become outputs.
  void put_outputs(const RecurrenceResult& result, std::int64_t t, int tokens) const {
    for (int i = 0; i < tokens; ++i) {
      void* to = static_cast<char*>(result.output) + ((t + i) * result.step + first_) * element_bytes(p_.element);
      narrow(p_.element, v_ + i * panels_ * kPanel, to, columns_);
    }
  }

  template <bool kDelta>
  void step(const RecurrenceResult& result) {
    pack(0, 1);
    float *recall = state_, *out = state_ + panels_ * kPanel;
    for (std::int64_t c = 0; c < 2 * panels_ * kPanel; c += kLanes) store(state_ + c, splat(0.f));
    each_block([&]<int kVectors>(std::int64_t block, std::int64_t rows, std::int64_t c, int count) {
      read_rows<kDelta, kVectors>(p_.initial + block * kStateRows * p_.d_v + first_ + c, p_.d_v, count,
                                  pairs_[0].read + block * kReads * kStateRows, rows, recall + c, out + c);
    });
    for (std::int64_t panel = 0; panel < panels_; ++panel) finish_step<kDelta>(panel, recall, out);
    each_block([&]<int kVectors>(std::int64_t block, std::int64_t rows, std::int64_t c, int count) {
      const std::int64_t at = block * kStateRows * p_.d_v + first_ + c;
      write_rows<kVectors>(p_.initial + at, result.state + at, p_.d_v, count,
                           pairs_[0].write + block * kWrites * kStateRows, rows, recall + c);
    });
    put_outputs(result, 0, 1);
  }

  // f<vectors>(block, its rows, first column, columns of the last vector)
  template <class F>
  void each_block(const F& f) const {
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const std::int64_t rows = least_of(kStateRows, p_.d_k - block * kStateRows);
      std::int64_t c = 0;
      for (; c + kStepWidth * kLanes <= columns_; c += kStepWidth * kLanes)
        f.template operator()<kStepWidth>(block, rows, c, kLanes);
      for (; c < columns_; c += kLanes)
        f.template operator()<1>(block, rows, c, static_cast<int>(least_of(kLanes, columns_ - c)));
    }
  }

  // recall becomes what is written.
  template <bool kDelta>
  void finish_step(std::int64_t panel, float* recall, const float* out) {
    PanelVectors sums[2], delta;
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      sums[0].of[0][w] = load(recall + panel * kPanel + w * kLanes);
      sums[1].of[0][w] = load(out + panel * kPanel + w * kLanes);
    }
    finish<kDelta, 1>(pairs_[0], 0, v_ + panel * kPanel, sums[0], sums[1], delta);
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) store(recall + panel * kPanel + w * kLanes, delta.of[0][w]);
  }

  // f(row of a panel, row of the whole state, columns)
  template <class F>
  void each_row(const F& f) {
    for (std::int64_t d = 0; d < p_.d_k; ++d) {
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        f(state_ + (panel * p_.d_k + d) * kPanel, d * p_.d_v + first_ + panel * kPanel,
          least_of(kPanel, columns_ - panel * kPanel));
      }
    }
  }

  void begin() {
    each_row([&](float* row, std::int64_t at, std::int64_t columns) {
      for (std::int64_t c = 0; c < kPanel; c += kLanes) {
        const auto count = static_cast<int>(least_of(kLanes, columns - c));
        store(row + c, p_.initial && count > 0 ? load_some(p_.initial + at + c, count) : splat(0.f));
      }
    });
  }

  void end(float* state) {
    each_row([&](const float* row, std::int64_t at, std::int64_t columns) {
      each_vector(columns, [&](std::int64_t c, int count) { store_some(state + at + c, load(row + c), count); });
    });
  }

  void pack(std::int64_t t, int tokens) {
    for (int i = 0; i < tokens; ++i) {
      widen_token(p_.v, p_.element, t + i, first_, columns_, panels_ * kPanel, v_ + i * panels_ * kPanel);
      beta_[i] = p_.beta ? p_.beta[(t + i) * p_.beta_step] : 1;
      kept_[i] = p_.decay && !p_.by_channel ? p_.decay[(t + i) * p_.decay_step] : 0;
    }
    for (int i = 0; i < 2 * kPairs; i += kLanes) store(kept_ + i, exp_decay(load(kept_ + i)));
    for (int n = 0; 2 * n < tokens; ++n) {
      Pair& pair = pairs_[n];
      pair.tokens = tokens - 2 * n >= 2 ? 2 : 1;
      pair.write = packed_ + n * blocks_ * kStateRows * (kWrites + kReads);
      pair.read = pair.write + blocks_ * kStateRows * kWrites;
      pair.tokens == 2 ? pack_rows<2>(pair, 2 * n, t) : pack_rows<1>(pair, 2 * n, t);
    }
  }

  // Rows [d, d + count) of what token `i` of the chunk keeps, and of a token's key or query.
  Vec kept_by(std::int64_t t, int i, std::int64_t d, int count) const {
    return p_.by_channel ? kept(p_, t + i, d, count) : splat(kept_[i]);
  }
  Vec part(const TokenRows& rows, std::int64_t t, std::int64_t d, int count) const {
    const void* at = element_at(rows.data, p_.element, t * rows.step + d);
    if (count == kLanes) return lanes_at(p_.element, at);
    float lane[kLanes] = {};
    widen(p_.element, at, lane, count);
    return load(lane);
  }

  template <int kTokens>
  void pack_rows(Pair& pair, int i, std::int64_t t) {
    Vec k2_k1 = splat(0.f), q1_k1 = k2_k1, q2_k1 = k2_k1, q2_k2 = k2_k1;
    for (std::int64_t d = 0; d < p_.d_k; d += kLanes) {
      const int count = static_cast<int>(least_of(kLanes, p_.d_k - d));
      const std::int64_t block = d / kStateRows, row = d % kStateRows;
      float* write = pair.write + block * kWrites * kStateRows + row;
      float* read = pair.read + block * kReads * kStateRows + row;
      const Vec a1 = kept_by(t, i, d, count), k1 = part(p_.k, t + i, d, count), q1 = part(p_.q, t + i, d, count);
      q1_k1 += q1 * k1;
      store(read, a1 * k1), store(read + 2 * kStateRows, a1 * q1);
      if constexpr (kTokens == 1) {
        store(write, a1), store(write + kStateRows, k1);
      } else {
        const Vec a2 = kept_by(t, i + 1, d, count);
        const Vec k2 = part(p_.k, t + i + 1, d, count), q2 = part(p_.q, t + i + 1, d, count);
        const Vec a = a1 * a2, old_k1 = a2 * k1;
        k2_k1 += k2 * old_k1, q2_k1 += q2 * old_k1, q2_k2 += q2 * k2;
        store(write, a), store(write + kStateRows, old_k1), store(write + 2 * kStateRows, k2);
        store(read + kStateRows, a * k2), store(read + 3 * kStateRows, a * q2);
      }
    }
    pair.q1_k1 = sum_lanes(q1_k1);
    if constexpr (kTokens == 2)
      pair.k2_k1 = sum_lanes(k2_k1), pair.q2_k1 = sum_lanes(q2_k1), pair.q2_k2 = sum_lanes(q2_k2);
  }

  // The chunk's tokens over some panels side by side.
  template <bool kDelta>
  void pass(std::int64_t first, std::int64_t count, int tokens) {
    const int last = (tokens - 1) / 2;
    PanelVectors delta[kMostTogether]{}, recall, out;
    const auto each = [&]<int kWrite, int kRead>(const Pair& before, const Pair& pair, int n) {
      for (std::int64_t i = 0; i < count; ++i) {
        soon_();
        float* state = state_ + (first + i) * p_.d_k * kPanel;
        sweep<kDelta, kWrite, kRead>(state, p_.d_k, before.write, pair.read, delta[i], recall, out);
        if constexpr (kRead > 0)
          finish<kDelta, kRead>(pair, 2 * n, v_ + (2 * n * panels_ + first + i) * kPanel, recall, out, delta[i]);
      }
    };
    for (int n = 0; n <= last; ++n) {
      const Pair &before = pairs_[n == 0 ? 0 : n - 1], &pair = pairs_[n];
      if (n == 0) {
        pair.tokens == 2 ? each.template operator()<0, 2>(before, pair, n)
                         : each.template operator()<0, 1>(before, pair, n);
      } else {
        pair.tokens == 2 ? each.template operator()<2, 2>(before, pair, n)
                         : each.template operator()<2, 1>(before, pair, n);
      }
    }
    const Pair& pair = pairs_[last];
    pair.tokens == 2 ? each.template operator()<2, 0>(pair, pair, last)
                     : each.template operator()<1, 0>(pair, pair, last);
  }

  // Computes what the tokens of a pair write, and puts their outputs in place of their values.
  template <bool kDelta, int kTokens>
  void finish(const Pair& pair, int i, float* v, const PanelVectors& recall, const PanelVectors& out,
              PanelVectors& delta) {
    const Vec scale = splat(p_.scale);
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      float* v1 = v + w * kLanes;
      Vec d1 = load(v1);
      if constexpr (kDelta) d1 = splat(beta_[i]) * (d1 - recall.of[0][w]);
      store(v1, scale * multiply_add(splat(pair.q1_k1), d1, out.of[0][w]));
      delta.of[0][w] = d1;
      if constexpr (kTokens == 1) continue;
      float* v2 = v1 + panels_ * kPanel;
      Vec d2 = load(v2);
      if constexpr (kDelta) d2 = splat(beta_[i + 1]) * ((d2 - recall.of[1][w]) - splat(pair.k2_k1) * d1);
      store(v2, scale * (splat(pair.q2_k2) * d2 + (splat(pair.q2_k1) * d1 + out.of[1][w])));
      delta.of[1][w] = d2;
    }
  }

  const Recurrence& p_;
  std::int64_t first_, panels_, columns_, blocks_;
  float *state_, *v_, *packed_;
  std::int64_t together_;
  Pair pairs_[kPairs];
  float beta_[2 * kPairs], kept_[2 * kPairs];  // what a token keeps, where that is one number for all channels
  PrefetchRows soon_;
};

inline std::size_t forward_scratch(const Recurrence& p, std::int64_t panels) {
  Workspace count{nullptr};
  const ForwardPanels counted(p, 0, panels, count);
  return count.bytes();
}

inline void forward_panels(const Recurrence& p, const RecurrenceResult& result, std::int64_t first, std::int64_t panels,
                           void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  ForwardPanels of_these(p, first, panels, memory);
  p.tokens == 1 && p.initial&& result.state ? of_these.run_step(result) : of_these.run(result);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
