// A recurrence of bf16 inputs by chunks of 32 tokens, on AMX's tiles. Queries and keys are bf16 as they come. The
// state, and what tokens write into it, are split into three bf16 parts, which keep all 24 bits of a float32. With the
// state S before a chunk, and G and E as in recurrence/chunk.hpp,
//   r_i = v_i − exp(G_i) Sᵀ k_i − Σ_{j<i} (k_i · k_j) E_ij δ_j,   δ_i = beta_i r_i
//   o_i = scale (exp(G_i) Sᵀ q_i + Σ_{j≤i} (q_i · k_j) E_ij δ_j)
//   S' = exp(G_last) S + Σ_j k_j (exp(G_last − G_j) δ_j)ᵀ
// where the sums over j < i are those of a triangular system.
#pragma once

#include "kernels/bf16/pack.hpp"
#include "kernels/recurrence/chunk.hpp"
#include "kernels/recurrence/forward.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kStateParts = 3;
constexpr std::uint32_t kHighHalf = 0xffff0000u;
constexpr int kBlock = 32;  // rows of the state that are changed at a time
static_assert(kChunk == kColumns && kPanel == kColumns && kChunk == kDepthStep);

inline Vec zero_or_nan(Vec x) { return x - x; }

inline Pairs pairs_at(const std::uint16_t* from) {
  Pairs pairs;
  __builtin_memcpy(&pairs, from, sizeof pairs);
  return pairs;
}

// 32 rows of c (kColumns) (+)= a · b, where b has kStateParts parts and a has one.
template <bool Accumulate>
inline void multiply_by_parts(const Left& a, const Right& b, float* c, std::int64_t pairs) {
  for (std::int64_t k = 0; k < pairs; k += 16) {
    load_left<2, false>(a.data + 2 * k, a.row);
    for (int part = kStateParts - 1; part >= 0; --part) {
      load_right<false>(b.data + part * b.part + k * 2 * kColumns);
      k == 0 && part == kStateParts - 1 ? begin_sums<2, Accumulate>(c, nullptr) : multiply_operands<2>();
    }
  }
  store_sums<2>(c);
}

// x (kChunk, kColumns) becomes y of the triangular system x_i + Σ_{j<i} minus_l_ij y_j = y_i / factor_i, by blocks of
// rows that stay in registers.
inline void solve_panel(const float* minus_l, const float* factor, float* x) {
  constexpr int kRowsAtOnce = 8;
  for (int first = 0; first < kChunk; first += kRowsAtOnce) {
    float* rows = x + first * kColumns;
    tile<kRowsAtOnce, true>(minus_l + first * kChunk, kChunk, 1, x, kColumns, rows, kColumns, first);
    Vec y[kRowsAtOnce][kWidth];
    ATTN_UNROLL for (int i = 0; i < kRowsAtOnce; ++i) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) y[i][w] = load(rows + i * kColumns + w * kLanes);
    }
    ATTN_UNROLL for (int i = 0; i < kRowsAtOnce; ++i) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        y[i][w] = splat(factor[first + i]) * y[i][w];
        store(rows + i * kColumns + w * kLanes, y[i][w]);
      }
      ATTN_UNROLL for (int m = i + 1; m < kRowsAtOnce; ++m) {
        const Vec l = splat(minus_l[(first + m) * kChunk + first + i]);
        ATTN_UNROLL for (int w = 0; w < kWidth; ++w) y[m][w] = l * y[i][w] + y[m][w];
      }
    }
  }
}

class ForwardChunks {
 public:
  ForwardChunks(const Recurrence& p, std::int64_t first, std::int64_t panels, Workspace& memory)
      : p_(p),
        first_(first),
        panels_(panels),
        depth_(round_up(p.d_k, kDepthStep)),
        row_(depth_ + kDepthStep),
        state_(halves(memory, panels * kStateParts * depth_ * kColumns)),
        rows_(halves(memory, 2 * kChunk * row_)),
        key_pairs_(halves(memory, depth_ * kColumns)),
        turned_keys_(halves(memory, depth_ * kChunk)),
        written_pairs_(halves(memory, kStateParts * kChunk * kColumns)),
        owed_(memory(2 * kChunk * kColumns)),
        read_(memory(2 * kChunk * kColumns)),
        delta_(memory(kChunk * kColumns)),
        block_(memory(kBlock * kColumns)),
        gone_(reinterpret_cast<std::int32_t*>(memory(panels))),
        rest_(memory(static_cast<std::int64_t>(forward_scratch(p, 1) / sizeof(float)))) {}

  void run(const RecurrenceResult& result) {
    for (std::int64_t panel = 0; panel < panels_; ++panel) begin(panel, result);
    for (std::int64_t i = 0; i < depth_ * kChunk; ++i) turned_keys_[i] = 0;  // rows that no key has are multiplied, too
    for (std::int64_t t = 0; t < p_.tokens; t += kChunk) {
      load_chunk(t, static_cast<int>(least_of(kChunk, p_.tokens - t)));
      soon_ = rows_ahead(p_, result, column(0), least_of(panels_ * kPanel, p_.d_v - column(0)), t, tokens_);
      soon_.spread_over(panels_ * kChunk);
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        if (!gone_[panel]) p_.delta ? pass<true>(panel, result) : pass<false>(panel, result);
      }
    }
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      if (!gone_[panel]) put_state(panel, result.state);
    }
  }

 private:
  std::int64_t column(std::int64_t panel) const { return (first_ + panel) * kPanel; }
  std::int64_t columns(std::int64_t panel) const { return least_of(kPanel, p_.d_v - column(panel)); }

  void begin(std::int64_t panel, const RecurrenceResult& result) {
    gone_[panel] = 0;
    Vec sum = splat(0.f);
    for (std::int64_t d = 0; d < depth_; d += 2) {
      Vec s[2][kWidth];
      for (int i = 0; i < 2; ++i) {
        for (int w = 0; w < kWidth; ++w) {
          const std::int64_t c = w * kLanes, count = least_of(kLanes, columns(panel) - c);
          const bool given = p_.initial && d + i < p_.d_k && count > 0;
          const float* from = p_.initial + (d + i) * p_.d_v + column(panel) + c;
          s[i][w] = given ? load_some(from, static_cast<int>(count)) : splat(0.f);
          sum += zero_or_nan(s[i][w]);
        }
      }
      put_parts(s, state_pairs(panel), d * kColumns);
    }
    if (sum_lanes(sum) == 0) return;
    gone_[panel] = 1;
    forward_panels(p_, result, first_ + panel, 1, rest_);
  }

  void put_state(std::int64_t panel, float* to) const {
    for (std::int64_t d = 0; d < p_.d_k; d += 2) {
      Vec s[2][kWidth];
      take_parts(state_pairs(panel), d * kColumns, s);
      for (int w = 0; w < kWidth; ++w) {  // an infinity is its first part: the others are NaN
        const Pairs first = pairs_at(state_pairs(panel).data + d * kColumns + 2 * w * kLanes);
        const Vec even = reinterpret_cast<Vec>(first << 16), odd = reinterpret_cast<Vec>(first & kHighHalf);
        s[0][w] = zero_or_nan(even) == splat(0.f) ? s[0][w] : even;
        s[1][w] = zero_or_nan(odd) == splat(0.f) ? s[1][w] : odd;
      }
      for (int i = 0; i < 2 && d + i < p_.d_k; ++i) {
        each_vector(columns(panel), [&](std::int64_t c, int count) {
          store_some(to + (d + i) * p_.d_v + column(panel) + c, s[i][c / kLanes], count);
        });
      }
    }
  }

  void load_chunk(std::int64_t t, int tokens) {
    t_ = t, tokens_ = tokens;
    head_decays(p_, t, tokens, kept_, before_, after_);
    const void* keys[kChunk];
    for (int i = 0; i < kChunk; ++i) {
      keys[i] = i < tokens ? token(p_.k, p_.element, t + i) : nullptr;
      const void* query = i < tokens ? token(p_.q, p_.element, t + i) : nullptr;
      pack_row(p_.element, keys[i], p_.d_k, kOnePart, rows_ + i * row_, depth_);
      pack_row(p_.element, query, p_.d_k, kOnePart, rows_ + (kChunk + i) * row_, depth_);
      beta_[i] = p_.beta && i < tokens ? p_.beta[(t + i) * p_.beta_step] : 1;
    }
    pack_transposed(p_.element, keys, p_.d_k, kOnePart, turned_keys_, kChunk);
    for (int half = 0; half < kChunk; half += kLanes) {
      const void* some[kLanes];
      for (int i = 0; i < kLanes; ++i) some[i] = keys[half + i];
      pack_columns(p_.element, some, p_.d_k, 1, kOnePart, key_pairs_ + 2 * half, depth_);
    }
    Waiting waiting;
    auto nothing = [] {};
    multiply_in_turn<1, false, Streams::right>(2 * kChunk, {rows_, row_, 0}, {key_pairs_, 0}, owed_, depth_ / 2,
                                               nothing, waiting);
    waiting.finish();
    keep_earlier();
  }

  // owed_: −(k_i · k_j) E_ij for j < i, and behind it scale (q_i · k_j) E_ij for j <= i, else 0, chosen and not
  // multiplied: what is later may be NaN.
  void keep_earlier() {
    Vec e[kWidth] = {};
    const VecI lanes = lane_numbers();
    for (int i = 0; i < kChunk; ++i) {
      float *keys = owed_ + i * kColumns, *queries = keys + kChunk * kColumns;
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const VecI j = lanes + w * kLanes, here = splat(static_cast<std::int32_t>(i));
        e[w] = j == here ? splat(1.f) : j < here ? e[w] * splat(kept_[i]) : splat(0.f);
        store(keys + w * kLanes, j < here ? load(keys + w * kLanes) * -e[w] : splat(0.f));
        store(queries + w * kLanes, j <= here ? load(queries + w * kLanes) * (e[w] * splat(p_.scale)) : splat(0.f));
      }
    }
  }

  Right state_pairs(std::int64_t panel) const {
    return {state_ + panel * kStateParts * depth_ * kColumns, depth_ * kColumns};
  }
  Right written_pairs() const { return {written_pairs_, kChunk * kColumns}; }
  float* outputs() const { return read_ + kChunk * kColumns; }

  // The chunk's tokens over a panel. What is not finite is followed where it goes by tokens, and so are all tokens
  // after it: chunks would carry it to earlier ones.
  template <bool kDelta>
  void pass(std::int64_t panel, const RecurrenceResult& result) {
    for (int i = kDelta ? 0 : kChunk; i < 2 * kChunk; i += 32)
      multiply_by_parts<false>({rows_ + i * row_, row_, 0}, state_pairs(panel), read_ + i * kColumns, depth_ / 2);
    write_and_read<kDelta>(panel);
    if (!finite()) return rest_by_tokens(panel, result);
    split_written();
    update(panel);
    put_outputs(panel, result);
  }

  // Computes what the tokens write, and their outputs.
  template <bool kDelta>
  void write_and_read(std::int64_t panel) {
    load_values(panel);
    float *read = read_, *out = outputs(), *delta = delta_;
    for (int i = 0; i < kChunk; ++i) {
      const Vec gain = splat(before_[i]), scaled = splat(p_.scale * before_[i]);
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const int at = i * kColumns + w * kLanes;
        if constexpr (kDelta) store(delta + at, load(delta + at) - gain * load(read + at));
        store(out + at, scaled * load(out + at));
      }
      soon_();
    }
    if constexpr (kDelta) solve_panel(owed_, beta_, delta);
    multiply_lower<true>({owed_ + kChunk * kColumns, kChunk}, {delta, kColumns}, {out, kColumns}, kChunk);
  }

  void put_outputs(std::int64_t panel, const RecurrenceResult& result) const {
    const std::int64_t width = columns(panel);
    auto* to = static_cast<std::uint16_t*>(result.output) + t_ * result.step + column(panel);
    const float* from = outputs();
    for (int i = 0; i < tokens_; ++i, to += result.step, from += kColumns) {
      if (width < kColumns) {
        narrow(Element::bf16, from, to, width);
        continue;
      }
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) store_bf16(to + w * kLanes, load(from + w * kLanes));
    }
  }

  // The state after the chunk: what is kept of the state before, and the writes.
  void update(std::int64_t panel) const {
    for (std::int64_t d = 0; d < depth_; d += kBlock) {
      take_block(panel, d);
      multiply_by_parts<true>({turned_keys_ + d * kChunk, kChunk, 0}, written_pairs(), block_, kChunk / 2);
      put_block(panel, d);
    }
  }

  void take_block(std::int64_t panel, std::int64_t d) const {
    const Right pairs = state_pairs(panel);
    const Vec kept = splat(before_[kChunk - 1]);
    float* to = block_;
    for (int i = 0; i < kBlock; i += 2) {
      Vec s[2][kWidth];
      take_parts(pairs, (d + i) * kColumns, s);
      ATTN_UNROLL for (int n = 0; n < 2; ++n) {
        ATTN_UNROLL for (int w = 0; w < kWidth; ++w) store(to + (i + n) * kColumns + w * kLanes, kept * s[n][w]);
      }
    }
  }

  void put_block(std::int64_t panel, std::int64_t d) const {
    const Right pairs = state_pairs(panel);
    const float* from = block_;
    for (int i = 0; i < kBlock; i += 2) {
      Vec s[2][kWidth];
      ATTN_UNROLL for (int n = 0; n < 2; ++n) {
        ATTN_UNROLL for (int w = 0; w < kWidth; ++w) s[n][w] = load(from + (i + n) * kColumns + w * kLanes);
      }
      put_parts(s, pairs, (d + i) * kColumns);
    }
  }

  // Two rows of kColumns numbers out of their parts.
  static void take_parts(const Right& from, std::int64_t at, Vec (&x)[2][kWidth]) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
      const std::uint16_t* pairs = from.data + at + 2 * w * kLanes + (kStateParts - 1) * from.part;
      x[0][w] = x[1][w] = splat(0.f);
      ATTN_UNROLL for (int n = 0; n < kStateParts; ++n, pairs -= from.part) {
        const Pairs both = pairs_at(pairs);
        x[0][w] += reinterpret_cast<Vec>(both << 16), x[1][w] += reinterpret_cast<Vec>(both & kHighHalf);
      }
    }
  }

  // Splits what is left of the tokens' writes after the chunk.
  void split_written() const {
    const float* delta = delta_;
    const Right pairs = written_pairs();
    for (int i = 0; i < kChunk; i += 2) {
      Vec x[2][kWidth];
      ATTN_UNROLL for (int n = 0; n < 2; ++n) {
        ATTN_UNROLL for (int w = 0; w < kWidth; ++w) x[n][w] =
            splat(after_[i + n]) * load(delta + (i + n) * kColumns + w * kLanes);
      }
      put_parts(x, pairs, i * kColumns);
    }
  }

  // Two rows of kColumns numbers as pairs. A part is the first eight bits of what those before left: three have all 24.
  static void put_parts(Vec (&x)[2][kWidth], const Right& to, std::int64_t at) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
      auto* pairs = const_cast<std::uint16_t*>(to.data) + at + 2 * w * kLanes;
      ATTN_UNROLL for (int n = 0; n < kStateParts; ++n, pairs += to.part) {
        const auto first = reinterpret_cast<Pairs>(x[0][w]), second = reinterpret_cast<Pairs>(x[1][w]) & kHighHalf;
        const Pairs both = second | (first >> 16);
        __builtin_memcpy(pairs, &both, sizeof both);
        x[0][w] -= reinterpret_cast<Vec>(first & kHighHalf), x[1][w] -= reinterpret_cast<Vec>(second);
      }
    }
  }

  void load_values(std::int64_t panel) const {
    for (int i = 0; i < kChunk; ++i)
      widen_token(p_.v, p_.element, t_ + least_of(i, tokens_ - 1), column(panel), i < tokens_ ? columns(panel) : 0,
                  kColumns, delta_ + i * kColumns);
  }

  // Whether the chunk's writes and outputs are.
  bool finite() const {
    const float *delta = delta_, *out = outputs();
    Vec sum = splat(0.f);
    for (int i = 0; i < kChunk; ++i) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const int at = i * kColumns + w * kLanes;
        sum += zero_or_nan(load(delta + at)) + zero_or_nan(load(out + at));
      }
    }
    return sum_lanes(sum) == 0;
  }

  void rest_by_tokens(std::int64_t panel, const RecurrenceResult& result) {
    gone_[panel] = 1;
    put_state(panel, result.state);
    const auto behind = [&](const TokenRows& rows) { return TokenRows{token(rows, p_.element, t_), rows.step}; };
    Recurrence rest = p_;
    rest.tokens -= t_, rest.initial = result.state;
    rest.q = behind(p_.q), rest.k = behind(p_.k), rest.v = behind(p_.v);
    if (p_.decay) rest.decay += t_ * p_.decay_step;
    if (p_.beta) rest.beta += t_ * p_.beta_step;
    void* output = static_cast<char*>(result.output) + t_ * result.step * element_bytes(p_.element);
    forward_panels(rest, {output, result.step, result.state}, first_ + panel, 1, rest_);
  }

  const Recurrence& p_;
  const std::int64_t first_, panels_, depth_, row_;  // row_: of packed rows, an odd number of lines
  std::uint16_t *const state_, *const rows_, *const key_pairs_, *const turned_keys_, *const written_pairs_;
  float *const owed_, *const read_, *const delta_, *const block_;
  std::int32_t* const gone_;  // of each panel: whether it goes by tokens
  float* const rest_;
  std::int64_t t_ = 0;
  int tokens_ = 0;
  float kept_[kChunk], before_[kChunk], after_[kChunk], beta_[kChunk];
  PrefetchRows soon_;
};

// Fewer tokens are faster one after the other.
constexpr std::int64_t kLeastTokens = 16;

inline bool by_chunks(const Recurrence& p) {
  return p.element == Element::bf16 && !(p.decay && p.by_channel) && p.tokens >= kLeastTokens;
}

inline std::size_t forward_chunks_scratch(const Recurrence& p, std::int64_t panels) {
  Workspace count{nullptr};
  const ForwardChunks counted(p, 0, panels, count);
  const std::size_t by_tokens = forward_scratch(p, panels);
  return count.bytes() > by_tokens ? count.bytes() : by_tokens;
}

inline void forward_chunks(const Recurrence& p, const RecurrenceResult& result, std::int64_t first, std::int64_t panels,
                           void* scratch) {
  if (!by_chunks(p)) return forward_panels(p, result, first, panels, scratch);
  const Session session;
  Workspace memory{static_cast<float*>(scratch)};
  ForwardChunks(p, first, panels, memory).run(result);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
