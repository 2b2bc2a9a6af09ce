// A step's scores of one query, masked, become weights.
#pragma once

#include "kernels/attention/decode_rows.hpp"
#include "kernels/attention/dropout.hpp"
#include "kernels/attention/mask.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// The scores of one query for `keys` keys from `first` on, made up to whole vectors; in units of log2.
struct Line {
  Query at;
  std::int32_t seen_first, seen_last;
  std::int64_t first, keys;
  float* s;
};

// Cell (query, key) of a grid, key by key.
template <class T, class F>
inline void for_each_key(const Grid<T>& grid, const Span& span, const Line& line, F&& f) {
  const T* cells = grid.data + span.batch * grid.batch + line.at.head * grid.head + line.at.token * grid.query +
                   line.first * grid.key;
  for (std::int64_t j = 0; j < line.keys; ++j) f(j, cells[j * grid.key]);
}

// f(j, numbers of keys first + j … first + j + kLanes - 1) for each vector of scores.
template <class F>
inline void for_each_vector(const Line& line, F&& f) {
  VecI number;
  for (int i = 0; i < kLanes; ++i) number[i] = static_cast<std::int32_t>(line.first) + i;
  for (std::int64_t j = 0; j < line.keys; j += kLanes) {
    f(j, number);
    number += kLanes;
  }
}

// Applies to a line all that changes its scores before they are masked.
inline void adjust_line(const Problem& p, const Span& span, const Line& line) {
  float* s = line.s;
  if (p.softcap > 0) {
    const Vec cap = splat(p.softcap * kLog2e);
    for (std::int64_t j = 0; j < line.keys; j += kLanes) store(s + j, cap * tanh(load(s + j)));
  }
  if (p.bias.data)
    for_each_key(p.bias, span, line,
                 [s](std::int64_t j, float b) { s[j] = b == kMinusInfinity ? b : s[j] + b * kLog2e; });
  if (p.distances.data) {
    const float* table = p.distances.data + line.at.head * p.distances.head;
    const std::int64_t first = p.centre[line.at.token] - line.first;
    for (std::int64_t j = 0; j < line.keys; ++j) {
      const float b = table[clamp(first - j, p.distances.low, p.distances.high)];
      s[j] = b == kMinusInfinity ? b : s[j] + b;
    }
  }
  if (p.alibi_slopes) {
    const Vec slope = splat(alibi_slope(p, line.at.head));
    const Vec centre = splat(static_cast<float>(p.centre[line.at.token]));
    for_each_vector(line, [&](std::int64_t j, VecI number) {
      const Vec ahead = __builtin_convertvector(number, Vec) - centre;
      store(s + j, load(s + j) - slope * max(ahead, -ahead));
    });
  }
}

inline void mask_line(const Problem& p, const Span& span, const Line& line) {
  float* s = line.s;
  if (p.keep.data) {
    for_each_key(p.keep, span, line, [s](std::int64_t j, bool keep) { s[j] = keep ? s[j] : kMinusInfinity; });
  }
  const std::int64_t end = line.first + (line.keys + kLanes - 1) / kLanes * kLanes;
  if (line.seen_first <= line.first && end <= line.seen_last) return;
  const VecI begin = splat(line.seen_first), last = splat(line.seen_last);
  for_each_vector(line, [&](std::int64_t j, VecI number) {
    store(s + j, ((number >= begin) & (number < last)) ? load(s + j) : splat(kMinusInfinity));
  });
}

// A lane draws four keys at once.
inline void drop_line(const Problem& p, const Span& span, const Line& line) {
  float* s = line.s;
  if (p.dropout.keep.data) {
    for_each_key(p.dropout.keep, span, line,
                 [&](std::int64_t j, bool keep) { s[j] = keep ? s[j] * p.dropout.factor : 0; });
    return;
  }
  const auto word = [](std::int64_t n) { return VecU{} + static_cast<std::uint32_t>(n); };
  VecU lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<std::uint32_t>(i);
  const std::int64_t number = p.labels.key + line.first;
  for (std::int64_t quad = number / 4; quad * 4 < number + line.keys; quad += kLanes) {
    VecU words[4] = {word(quad) + lane, word(p.labels.query + line.at.token), word(p.labels.head + line.at.head),
                     word(p.labels.batch + span.batch)};
    philox(words, p.dropout.key);
    for (int i = 0; i < 4 * kLanes; ++i) {
      const std::int64_t j = quad * 4 + i - number;
      if (j < 0 || j >= line.keys) continue;
      s[j] *= words[i % 4][i / 4] >= p.dropout.threshold ? p.dropout.factor : 0;
    }
  }
}

inline float max_lanes(Vec v, float least) {
  for (int i = 0; i < kLanes; ++i) least = v[i] > least || v[i] != v[i] ? v[i] : least;
  return least;
}

// Scores become weights 2^(s - state[0]), the largest score so far, and state[1] their sum; returns by how much the
// context must shrink.
__attribute__((noinline)) float soften_line(const Line& line, float* state) {
  float* s = line.s;
  Vec most = splat(kMinusInfinity);
  for (std::int64_t j = 0; j < line.keys; j += kLanes) most = max(load(s + j), most);
  const float largest = max_lanes(most, state[0]);
  const Vec base = splat(largest == kMinusInfinity ? 0 : largest);
  Vec sum = splat(0.f);
  for (std::int64_t j = 0; j < line.keys; j += kLanes) {
    const Vec weight = exp2_nonpositive(load(s + j) - base);
    sum += weight;
    store(s + j, weight);
  }
  const float shrink = exp2_nonpositive(splat(state[0]) - base)[0];
  state[0] = largest;
  state[1] = state[1] * shrink + sum_lanes(sum);
  return shrink;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
