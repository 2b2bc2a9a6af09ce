#include "attention/positions.hpp"

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

std::int64_t shift(const Mask& mask, std::int64_t tq, std::int64_t tk) {
  return mask.align == Align::bottom_right ? tk - tq : 0;
}

void place_sequences(const Mask& mask, Positions& at) {
  for (std::int64_t s = 0; s + 1 < mask.query_starts.numel(); ++s) {
    const auto start = [s](const Tensor& t, std::int64_t next) { return static_cast<std::int64_t>(t.at({s + next})); };
    const std::int64_t q0 = start(mask.query_starts, 0), q1 = start(mask.query_starts, 1);
    const std::int64_t k0 = start(mask.key_starts, 0), k1 = start(mask.key_starts, 1);
    for (std::int64_t i = q0; i < q1; ++i) {
      const auto n = static_cast<std::size_t>(i);
      at.begin[n] = narrow(k0), at.end[n] = narrow(k1);
      at.centre[n] = narrow(k0 + i - q0 + shift(mask, q1 - q0, k1 - k0));
    }
  }
}

void place_batches(const Problem& p, const Mask& mask, Positions& at) {
  for (std::int64_t b = 0; b < (at.per_batch ? p.batch : 1); ++b) {
    const std::int64_t tk = at.per_batch ? static_cast<std::int64_t>(mask.key_lengths.at({b})) : p.tk;
    for (std::int64_t i = 0; i < p.tq; ++i) {
      const std::size_t n = at.index(p, b, i);
      at.end[n] = narrow(tk);
      at.centre[n] = narrow(i + shift(mask, p.tq, tk));
    }
  }
}

}  // namespace

Positions positions(const Problem& p, const Mask& mask) {
  const bool per_batch = mask.key_lengths.defined();
  Positions at(static_cast<std::size_t>((per_batch ? p.batch : 1) * p.tq), per_batch);
  mask.query_starts.defined() ? place_sequences(mask, at) : place_batches(p, mask, at);
  for (std::size_t i = 0; i < at.count; ++i) {
    const std::int64_t centre = at.centre[i];
    std::int64_t first = at.begin[i], last = at.end[i];
    if (mask.window_left >= 0) first = std::max(first, centre - mask.window_left);
    if (mask.window_right >= 0) last = std::min(last, centre + mask.window_right + 1);
    if (mask.is_causal) last = std::min(last, centre + 1);
    at.first[i] = narrow(first);
    at.last[i] = narrow(std::max(first, last));
  }
  return at;
}

Tensor seen_keys(const Problem& p, const Mask& mask) {
  const Positions at = positions(p, mask);
  Tensor keep = Tensor::empty({at.per_batch ? p.batch : 1, 1, p.tq, p.tk}, DType::boolean);
  auto* cell = keep.data<bool>();
  for (std::int64_t b = 0; b < keep.size(0); ++b) {
    for (std::int64_t i = 0; i < p.tq; ++i) {
      const std::size_t n = at.index(p, b, i);
      const std::int64_t centre = at.centre[n];
      for (std::int64_t j = 0; j < p.tk; ++j) {
        const bool own = j >= at.begin[n] && j < at.end[n];
        const bool past = !mask.is_causal || j <= centre;
        const bool left = mask.window_left < 0 || centre - j <= mask.window_left;
        const bool right = mask.window_right < 0 || j - centre <= mask.window_right;
        *cell++ = own && past && left && right;
      }
    }
  }
  return keep;
}

Tensor alibi_bias(const Problem& p, const Mask& mask, const Tensor& slopes) {
  const Positions at = positions(p, mask);
  Tensor bias = Tensor::empty({at.per_batch ? p.batch : 1, p.hq, p.tq, p.tk}, DType::f64);
  auto* cell = bias.data<double>();
  for (std::int64_t b = 0; b < bias.size(0); ++b) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      const double slope = slopes.at({h});
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const std::int64_t centre = at.centre[at.index(p, b, i)];
        for (std::int64_t j = 0; j < p.tk; ++j) {
          *cell++ = -slope * static_cast<double>(std::abs(centre - j));
        }
      }
    }
  }
  return bias;
}

}  // namespace attn
