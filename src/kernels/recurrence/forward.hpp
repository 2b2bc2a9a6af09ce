// A recurrence by tokens. The columns of a state do not know of each other: a panel of them stays in L1 while the
// tokens of a chunk pass over it, two in a sweep, with columns across the lanes. A sweep applies what one pair of
// tokens writes and reads the state for the next pair. With the state S before a pair, decays a and writes δ,
//   S' = a2 a1 S + a2 k1 δ1ᵀ + k2 δ2ᵀ
//   o1 = (a1 q1)ᵀ S + (q1·k1) δ1,     o2 = (a2 a1 q2)ᵀ S + (q2·a2 k1) δ1 + (q2·k2) δ2
//   δ1 = β1 (v1 − (a1 k1)ᵀ S),        δ2 = β2 (v2 − (a2 a1 k2)ᵀ S − (k2·a2 k1) δ1)
// so that the products of S are 3.5 multiply-adds a token and number of S. What keys and queries owe each other is
// packed once for all panels.
#pragma once

#include "kernels/recurrence/decay.hpp"
#include "kernels/simd/tile.hpp"
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

// For each kStateRows rows of the state: of writes a2 a1, a2 k1 and k2; of reads a1 k1, a2 a1 k2, a1 q1 and a2 a1 q2.
constexpr int kWrites = 3, kReads = 4;

// Two tokens, or the last one.
struct Pair {
  int tokens;
  float k2_k1, q1_k1, q2_k1, q2_k2;
  float beta[2];
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
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      float* at = state + i * kPanel + w * kLanes;
      Vec s = load(at);
      if constexpr (kWrite > 0) {
        s = splat(write[i]) * s;
        ATTN_UNROLL for (int n = 0; n < kWrite; ++n) s = splat(write[(n + 1) * kStateRows + i]) * d[n][w] + s;
        store(at, s);
      }
      ATTN_UNROLL for (int n = 0; n < kRead; ++n) {
        if constexpr (kDelta) x[n][w] = splat(read[n * kStateRows + i]) * s + x[n][w];
        y[n][w] = splat(read[(n + 2) * kStateRows + i]) * s + y[n][w];
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

// Some panels of a head.
class ForwardPanels {
 public:
  ForwardPanels(const Recurrence& p, std::int64_t first, std::int64_t panels, Workspace& memory)
      : p_(p),
        first_(first * kPanel),
        panels_(panels),
        columns_(least_of(panels * kPanel, p.d_v - first * kPanel)),
        blocks_(ceil_div(p.d_k, kStateRows)),
        state_(memory(panels * p.d_k * kPanel)),
        v_(memory(2 * kPairs * panels * kPanel)),
        packed_(memory(kPairs * blocks_ * (kWrites + kReads) * kStateRows)) {
    for (auto*& each : rows_) each = memory(blocks_ * kStateRows);
  }

  void run(const RecurrenceResult& result) {
    begin();
    for (std::int64_t t = 0; t < p_.tokens; t += 2 * kPairs) {
      const int tokens = static_cast<int>(least_of(2 * kPairs, p_.tokens - t));
      pack(t, tokens);
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        p_.delta ? pass<true>(panel, tokens) : pass<false>(panel, tokens);
      }
      for (int i = 0; i < tokens; ++i) {  // v has become the output
        void* to = static_cast<char*>(result.output) + ((t + i) * result.step + first_) * element_bytes(p_.element);
        narrow(p_.element, v_ + i * panels_ * kPanel, to, columns_);
      }
    }
    if (result.state) end(result.state);
  }

 private:
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
      for (std::int64_t c = 0; c < kPanel; ++c) row[c] = p_.initial && c < columns ? p_.initial[at + c] : 0;
    });
  }

  void end(float* state) {
    each_row([&](const float* row, std::int64_t at, std::int64_t columns) {
      for (std::int64_t c = 0; c < columns; ++c) state[at + c] = row[c];
    });
  }

  void pack(std::int64_t t, int tokens) {
    for (int i = 0; i < tokens; ++i)
      widen_token(p_.v, p_.element, t + i, first_, columns_, panels_ * kPanel, v_ + i * panels_ * kPanel);
    for (int n = 0; 2 * n < tokens; ++n) pack_pair(pairs_[n], n, t + 2 * n, tokens - 2 * n >= 2 ? 2 : 1);
  }

  void pack_pair(Pair& pair, int n, std::int64_t t, int tokens) {
    const std::int64_t padded = blocks_ * kStateRows;
    for (int i = 0; i < tokens; ++i) {
      widen_token(p_.k, p_.element, t + i, 0, p_.d_k, padded, rows_[i]);
      widen_token(p_.q, p_.element, t + i, 0, p_.d_k, padded, rows_[2 + i]);
      pair.beta[i] = p_.beta ? p_.beta[(t + i) * p_.beta_step] : 1;
    }
    pair.tokens = tokens;
    pair.write = packed_ + n * padded * (kWrites + kReads);
    pair.read = pair.write + padded * kWrites;
    tokens == 2 ? pack_rows<2>(pair, t) : pack_rows<1>(pair, t);
  }

  template <int kTokens>
  void pack_rows(Pair& pair, std::int64_t t) {
    Vec k2_k1 = splat(0.f), q1_k1 = k2_k1, q2_k1 = k2_k1, q2_k2 = k2_k1;
    for (std::int64_t d = 0; d < p_.d_k; d += kLanes) {
      const int count = static_cast<int>(least_of(kLanes, p_.d_k - d));
      const std::int64_t block = d / kStateRows, row = d % kStateRows;
      float* write = pair.write + block * kWrites * kStateRows + row;
      float* read = pair.read + block * kReads * kStateRows + row;
      const Vec a1 = kept(p_, t, d, count), k1 = load(rows_[0] + d), q1 = load(rows_[2] + d);
      q1_k1 += q1 * k1;
      store(read, a1 * k1), store(read + 2 * kStateRows, a1 * q1);
      if constexpr (kTokens == 1) {
        store(write, a1), store(write + kStateRows, k1);
      } else {
        const Vec a2 = kept(p_, t + 1, d, count), k2 = load(rows_[1] + d), q2 = load(rows_[3] + d);
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

  // The chunk's tokens over one panel.
  template <bool kDelta>
  void pass(std::int64_t panel, int tokens) {
    float* state = state_ + panel * p_.d_k * kPanel;
    float* v = v_ + panel * kPanel;
    const int last = (tokens - 1) / 2;
    PanelVectors delta{}, recall, out;
    for (int n = 0; n <= last; ++n, v += 2 * panels_ * kPanel) {
      const Pair& pair = pairs_[n];
      const float* write = n == 0 ? pair.write : pairs_[n - 1].write;
      const auto next = [&]<int kWrite>() {
        pair.tokens == 2 ? sweep<kDelta, kWrite, 2>(state, p_.d_k, write, pair.read, delta, recall, out)
                         : sweep<kDelta, kWrite, 1>(state, p_.d_k, write, pair.read, delta, recall, out);
      };
      n == 0 ? next.template operator()<0>() : next.template operator()<2>();
      finish<kDelta>(pair, v, recall, out, delta);
    }
    const Pair& pair = pairs_[last];
    pair.tokens == 2 ? sweep<kDelta, 2, 0>(state, p_.d_k, pair.write, pair.read, delta, recall, out)
                     : sweep<kDelta, 1, 0>(state, p_.d_k, pair.write, pair.read, delta, recall, out);
  }

  // What the tokens of a pair write, and their outputs in place of their values.
  template <bool kDelta>
  void finish(const Pair& pair, float* v, const PanelVectors& recall, const PanelVectors& out, PanelVectors& delta) {
    const Vec scale = splat(p_.scale);
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      float* v1 = v + w * kLanes;
      Vec d1 = load(v1);
      if constexpr (kDelta) d1 = splat(pair.beta[0]) * (d1 - recall.of[0][w]);
      store(v1, scale * (splat(pair.q1_k1) * d1 + out.of[0][w]));
      delta.of[0][w] = d1;
      if (pair.tokens == 1) continue;
      float* v2 = v1 + panels_ * kPanel;
      Vec d2 = load(v2);
      if constexpr (kDelta) d2 = splat(pair.beta[1]) * ((d2 - recall.of[1][w]) - splat(pair.k2_k1) * d1);
      store(v2, scale * (splat(pair.q2_k2) * d2 + (splat(pair.q2_k1) * d1 + out.of[1][w])));
      delta.of[1][w] = d2;
    }
  }

  const Recurrence& p_;
  std::int64_t first_, panels_, columns_, blocks_;
  float *state_, *v_, *packed_;
  float* rows_[4];  // k1, k2, q1, q2
  Pair pairs_[kPairs];
};

inline std::size_t forward_scratch(const Recurrence& p, std::int64_t panels) {
  Workspace count{nullptr};
  const ForwardPanels counted(p, 0, panels, count);
  return count.bytes();
}

inline void forward_panels(const Recurrence& p, const RecurrenceResult& result, std::int64_t first, std::int64_t panels,
                           void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  ForwardPanels(p, first, panels, memory).run(result);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
