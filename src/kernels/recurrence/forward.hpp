// A recurrence by tokens. The columns of a state do not know of each other: a panel of them stays in L1 while the
// tokens of a chunk pass over it, a group of kGroup in a sweep, with columns across the lanes. A sweep applies what one
// group writes and reads the state for the next one. With the state S before a group, decays a and writes δ, of two
//   S' = a2 a1 S + a2 k1 δ1ᵀ + k2 δ2ᵀ
//   o1 = (a1 q1)ᵀ S + (q1·k1) δ1,     o2 = (a2 a1 q2)ᵀ S + (q2·a2 k1) δ1 + (q2·k2) δ2
//   δ1 = β1 (v1 − (a1 k1)ᵀ S),        δ2 = β2 (v2 − (a2 a1 k2)ᵀ S − (k2·a2 k1) δ1)
// so that the products of S are 3 + 1 / kGroup multiply-adds a token and number of S. What keys and queries owe each
// other is packed once for all panels.
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
// Tokens. Sums for four, and what four write, take 24 of 32 registers; 16 have room for two.
#if defined(__AVX512F__)
constexpr int kGroup = 4;
#else
constexpr int kGroup = 2;
#endif
constexpr int kPanel = kPanelWidth * kLanes;             // columns
constexpr int kTokens = 32, kGroups = kTokens / kGroup;  // of a chunk
constexpr std::int64_t kStateRows = 16;                  // that are packed side by side
// Panels that a chunk's groups pass over in turns: what one waits for at the end of its sweep is done beside the next
// one's. They leave room in an L1 of 32 KB.
constexpr std::int64_t kMostTogether = 4, kTogetherBytes = 16 << 10;

// For each kStateRows rows of the state: of writes what is kept and the keys, as they are after the group; of reads the
// keys and then the queries, with what is kept up to each.
constexpr int kWrites = 1 + kGroup, kReads = 2 * kGroup;

// The last one of a text may have fewer tokens. The others' keys and queries are zeros then, and they write nothing.
struct Group {
  int tokens;
  float keys[kGroup][kGroup], queries[kGroup][kGroup];  // a token's with the key of one before it, or its own
  float *write, *read;
};

struct PanelVectors {
  Vec of[kGroup][kPanelWidth];  // a token's
};

// One pass over a panel: applies the writes `delta` of a group, and sums keys and queries of the next one with it.
template <bool kDelta, bool kWrite, bool kRead>
inline void sweep(float* state, std::int64_t rows, const float* write, const float* read, const PanelVectors& delta,
                  PanelVectors& recall, PanelVectors& out, PrefetchRows& soon) {
  Vec d[kGroup][kPanelWidth], x[kGroup][kPanelWidth], y[kGroup][kPanelWidth];
  ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      d[n][w] = delta.of[n][w], x[n][w] = splat(0.f), y[n][w] = splat(0.f);
    }
  }
  const auto row = [&](std::int64_t i) __attribute__((always_inline)) {
    // A number serves all vectors before the next is read: each read anew for each would hold up the multiply-adds.
    float* at = state + i * kPanel;
    Vec s[kPanelWidth];
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = load(at + w * kLanes);
    if constexpr (kWrite) {
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = splat(write[i]) * s[w];
      ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
        const Vec key = splat(write[(n + 1) * kStateRows + i]);
        ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) s[w] = multiply_add(key, d[n][w], s[w]);
      }
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) store(at + w * kLanes, s[w]);
    }
    if constexpr (!kRead) return;
    ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
      const Vec key = splat(read[n * kStateRows + i]), query = splat(read[(n + kGroup) * kStateRows + i]);
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
        if constexpr (kDelta) x[n][w] = multiply_add(key, s[w], x[n][w]);
        y[n][w] = multiply_add(query, s[w], y[n][w]);
      }
    }
  };
  std::int64_t left = rows;
  for (; left >= kStateRows; left -= kStateRows) {
    soon();
    _Pragma("GCC unroll 4") for (std::int64_t i = 0; i < kStateRows; ++i) row(i);
    state += kStateRows * kPanel, write += kWrites * kStateRows, read += kReads * kStateRows;
  }
  for (std::int64_t i = 0; i < left; ++i) row(i);
  ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) recall.of[n][w] = x[n][w], out.of[n][w] = y[n][w];
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
    const Vec key = splat(read[i]), query = splat(read[kGroup * kStateRows + i]);
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

// Names the rows that are brought to L2 beside a chunk of `tokens` from t on: the tokens of the next one, and the place
// where these tokens' outputs go; of values and outputs columns [first, first + columns).
inline PrefetchRows rows_ahead(const Recurrence& p, const RecurrenceResult& result, std::int64_t first,
                               std::int64_t columns, std::int64_t t, int tokens) {
  const std::int64_t next = t + tokens, count = least_of(kTokens, p.tokens - next);
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
        v_(memory(kTokens * panels * kPanel)),
        delta_(memory(kGroup * panels * kPanel)) {
    for (Group& group : groups_) {
      group.write = memory(blocks_ * kWrites * kStateRows);
      group.read = memory(blocks_ * kReads * kStateRows);
    }
    const std::int64_t fit = kTogetherBytes / (p.d_k * kPanel * 4);
    together_ = fit < 1 ? 1 : least_of(fit, kMostTogether);
  }

  void run(const RecurrenceResult& result) {
    begin();
    for (std::int64_t t = 0; t < p_.tokens; t += kTokens) {
      const int tokens = static_cast<int>(least_of(kTokens, p_.tokens - t));
      pack<kGroup>(t, tokens);
      soon_ = rows_ahead(p_, result, first_, columns_, t, tokens);
      soon_.spread_over(panels_ * ceil_div(tokens, kGroup) * blocks_);
      for (std::int64_t panel = 0; panel < panels_; panel += together_) {
        const std::int64_t count = least_of(together_, panels_ - panel);
        p_.delta ? pass<true>(panel, count, t, tokens) : pass<false>(panel, count, t, tokens);
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
    pack<1>(0, 1);
    float *recall = state_, *out = state_ + panels_ * kPanel;
    for (std::int64_t c = 0; c < 2 * panels_ * kPanel; c += kLanes) store(state_ + c, splat(0.f));
    each_block([&]<int kVectors>(std::int64_t block, std::int64_t rows, std::int64_t c, int count) {
      read_rows<kDelta, kVectors>(p_.initial + block * kStateRows * p_.d_v + first_ + c, p_.d_v, count,
                                  groups_[0].read + block * kReads * kStateRows, rows, recall + c, out + c);
    });
    for (std::int64_t panel = 0; panel < panels_; ++panel) finish_step<kDelta>(panel, recall, out);
    each_block([&]<int kVectors>(std::int64_t block, std::int64_t rows, std::int64_t c, int count) {
      const std::int64_t at = block * kStateRows * p_.d_v + first_ + c;
      write_rows<kVectors>(p_.initial + at, result.state + at, p_.d_v, count,
                           groups_[0].write + block * kWrites * kStateRows, rows, recall + c);
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
    finish<kDelta, 1>(groups_[0], 0, v_ + panel * kPanel, sums[0], sums[1], delta);
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

  // Applies what the last group writes.
  void end(float* state) {
    PanelVectors delta, none{};
    for (std::int64_t panel = 0; p_.tokens > 0 && panel < panels_; ++panel) {
      load_delta(panel, delta);
      sweep<false, true, false>(state_ + panel * p_.d_k * kPanel, p_.d_k, group_of(p_.tokens - 1).write, nullptr, delta,
                                none, none, soon_);
    }
    each_row([&](const float* row, std::int64_t at, std::int64_t columns) {
      each_vector(columns, [&](std::int64_t c, int count) { store_some(state + at + c, load(row + c), count); });
    });
  }

  // A group's writes are applied with the next group, be it of the next chunk: one more place than a chunk has groups.
  Group& group_of(std::int64_t t) { return groups_[t / kGroup % (kGroups + 1)]; }

  template <int kMost>
  void pack(std::int64_t t, int tokens) {
    for (int i = 0; i < tokens; ++i) {
      widen_token(p_.v, p_.element, t + i, first_, columns_, panels_ * kPanel, v_ + i * panels_ * kPanel);
      beta_[i] = p_.beta ? p_.beta[(t + i) * p_.beta_step] : 1;
      kept_[i] = p_.decay && !p_.by_channel ? p_.decay[(t + i) * p_.decay_step] : 0;
    }
    for (int i = 0; i < kTokens; i += kLanes) store(kept_ + i, exp_decay(load(kept_ + i)));
    for (int i = 0; i < tokens; i += kMost) {
      Group& group = group_of(t + i);
      group.tokens = static_cast<int>(least_of(kMost, tokens - i));
      pack_rows<kMost>(group, i, t);
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

  // Packs at most kMost of a group's tokens.
  template <int kMost>
  void pack_rows(Group& group, int first, std::int64_t t) const {
    Vec keys[kMost][kMost], queries[kMost][kMost];
    ATTN_UNROLL for (int n = 0; n < kMost; ++n) {
      ATTN_UNROLL for (int j = 0; j < kMost; ++j) keys[n][j] = splat(0.f), queries[n][j] = splat(0.f);
    }
    for (std::int64_t d = 0; d < p_.d_k; d += kLanes) {
      const int count = static_cast<int>(least_of(kLanes, p_.d_k - d));
      const std::int64_t block = d / kStateRows, row = d % kStateRows;
      float* write = group.write + block * kWrites * kStateRows + row;
      float* read = group.read + block * kReads * kStateRows + row;
      Vec kept = splat(1.f), old[kMost];  // the keys, as they are at token n
      ATTN_UNROLL for (int n = 0; n < kMost; ++n) {
        const bool here = n < group.tokens;
        const Vec a = here ? kept_by(t, first + n, d, count) : splat(1.f);
        const Vec k = here ? part(p_.k, t + first + n, d, count) : splat(0.f);
        const Vec q = here ? part(p_.q, t + first + n, d, count) : splat(0.f);
        kept = n == 0 ? a : kept * a;
        ATTN_UNROLL for (int j = 0; j < n; ++j) {
          old[j] = a * old[j];
          keys[n][j] = multiply_add(k, old[j], keys[n][j]);
          queries[n][j] = multiply_add(q, old[j], queries[n][j]);
        }
        old[n] = k;
        queries[n][n] = multiply_add(q, k, queries[n][n]);
        store(read + n * kStateRows, kept * k), store(read + (kGroup + n) * kStateRows, kept * q);
      }
      store(write, kept);
      ATTN_UNROLL for (int n = 0; n < kMost; ++n) store(write + (n + 1) * kStateRows, old[n]);
    }
    ATTN_UNROLL for (int n = 0; n < kMost; ++n) {
      ATTN_UNROLL for (int j = 0; j < n; ++j) group.keys[n][j] = sum_lanes(keys[n][j]);
      ATTN_UNROLL for (int j = 0; j <= n; ++j) group.queries[n][j] = sum_lanes(queries[n][j]);
    }
  }

  // The chunk's tokens over some panels side by side.
  template <bool kDelta>
  void pass(std::int64_t first, std::int64_t count, std::int64_t t, int tokens) {
    PanelVectors delta[kMostTogether]{}, recall, out;
    for (std::int64_t i = 0; t > 0 && i < count; ++i) load_delta(first + i, delta[i]);
    for (int n = 0; n < tokens; n += kGroup) {
      const Group& group = group_of(t + n);
      for (std::int64_t i = 0; i < count; ++i) {
        float* state = state_ + (first + i) * p_.d_k * kPanel;
        if (t + n == 0) {
          sweep<kDelta, false, true>(state, p_.d_k, nullptr, group.read, delta[i], recall, out, soon_);
        } else {
          sweep<kDelta, true, true>(state, p_.d_k, group_of(t + n - 1).write, group.read, delta[i], recall, out, soon_);
        }
        finish<kDelta, kGroup>(group, n, v_ + (n * panels_ + first + i) * kPanel, recall, out, delta[i]);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) store_delta(first + i, delta[i]);
  }

  // A panel's last group writes these differences.
  float* delta_at(std::int64_t panel, int n) const { return delta_ + (panel * kGroup + n) * kPanel; }
  void load_delta(std::int64_t panel, PanelVectors& delta) const {
    ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) delta.of[n][w] = load(delta_at(panel, n) + w * kLanes);
    }
  }
  void store_delta(std::int64_t panel, const PanelVectors& delta) const {
    ATTN_UNROLL for (int n = 0; n < kGroup; ++n) {
      ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) store(delta_at(panel, n) + w * kLanes, delta.of[n][w]);
    }
  }

  // Computes what the tokens of a group write, at most kMost, and puts their outputs in place of their values.
  template <bool kDelta, int kMost>
  void finish(const Group& group, int first, float* v, const PanelVectors& recall, const PanelVectors& out,
              PanelVectors& delta) const {
    const Vec scale = splat(p_.scale);
    ATTN_UNROLL for (int w = 0; w < kPanelWidth; ++w) {
      ATTN_UNROLL for (int n = 0; n < kMost; ++n) {
        if (n >= group.tokens) {  // 0 · -0 leaves a state of -0 as it is
          delta.of[n][w] = splat(-0.f);
          continue;
        }
        float* at = v + n * panels_ * kPanel + w * kLanes;
        Vec d = load(at), o = out.of[n][w];
        if constexpr (kDelta) {
          d = d - recall.of[n][w];
          ATTN_UNROLL for (int j = 0; j < n; ++j) d = multiply_add(splat(-group.keys[n][j]), delta.of[j][w], d);
          d = splat(beta_[first + n]) * d;
        }
        delta.of[n][w] = d;
        ATTN_UNROLL for (int j = 0; j <= n; ++j) o = multiply_add(splat(group.queries[n][j]), delta.of[j][w], o);
        store(at, scale * o);
      }
    }
  }

  const Recurrence& p_;
  std::int64_t first_, panels_, columns_, blocks_;
  float *state_, *v_, *delta_;
  std::int64_t together_;
  Group groups_[kGroups + 1];
  float beta_[kTokens], kept_[kTokens];  // what a token keeps, where that is one number for all channels
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
