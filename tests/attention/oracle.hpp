// Random problems, and what the oracle makes of them.
#pragma once

#include <algorithm>
#include <vector>

#include "attn/attention.hpp"
#include "core/testing.hpp"
#include "oracle/expect.hpp"

namespace attn::test {

struct Sizes {
  std::int64_t b = 1, hq = 1, hkv = 1, tq = 1, tk = 1, d = 1, dv = 1;
};

inline Sizes random_sizes(std::mt19937& rng, std::int64_t least = 0) {
  Sizes s;
  s.b = pick(rng, least, 3);
  s.hkv = pick(rng, least, 3);
  s.hq = s.hkv * pick(rng, 1, 3);
  s.tq = pick(rng, least, 6);
  s.tk = pick(rng, least, 6);
  s.d = pick(rng, 1, 5);
  s.dv = pick(rng, least, 5);
  return s;
}

struct Inputs {
  Sizes sizes;
  Tensor q, k, v;
  AttentionOptions options;
};

// A shape that broadcasts to (b, h, tq, tk): sizes made 1 and leading ones left out at random.
inline Shape broadcastable(std::mt19937& rng, const Sizes& s) {
  const std::vector<std::int64_t> full{s.b, s.hq, s.tq, s.tk};
  Shape shape;
  for (auto i = static_cast<std::size_t>(pick(rng, 0, 4)); i < 4; ++i) shape.push_back(chance(rng, 0.3) ? 1 : full[i]);
  return shape;
}

// Every coordinate and the score itself matter, and some keys are forbidden.
inline ScoreFunction wavy_scores() {
  return ScoreFunction::elementwise(
      [](auto s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        const auto x = static_cast<double>(s);
        if ((i + 3 * j) % 11 == 0) return -kInf;
        return x / static_cast<double>(1 + h) + 0.05 * static_cast<double>((i + 2 * j) % 8) +
               0.2 * std::sin(x + static_cast<double>(b));
      },
      [](auto s, std::int64_t b, std::int64_t h, std::int64_t, std::int64_t) {
        return 1 / static_cast<double>(1 + h) + 0.2 * std::cos(static_cast<double>(s) + static_cast<double>(b));
      });
}

inline Mask random_blocks(std::mt19937& rng, const Sizes& s, std::int64_t largest) {
  const std::int64_t query = pick(rng, 1, largest), key = pick(rng, 1, largest);
  Sizes blocks = s;
  blocks.tq = (s.tq + query - 1) / query, blocks.tk = (s.tk + key - 1) / key;
  return Mask::blocks(booleans(rng, broadcastable(rng, blocks), 0.5), query, key);
}

inline AttentionOptions random_options(std::mt19937& rng, const Sizes& s, DType dtype) {
  AttentionOptions options;
  if (chance(rng, 0.4)) options.mask.is_causal = true;
  if (chance(rng, 0.5)) options.mask.align = Align::bottom_right;
  if (chance(rng, 0.4)) options.mask.keep = booleans(rng, broadcastable(rng, s), 0.6);
  if (chance(rng, 0.4)) {
    options.mask.bias = uniform(rng, broadcastable(rng, s), dtype, -2, 2);
    Tensor flat = options.mask.bias.view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      if (chance(rng, 0.2)) flat.set({i}, -kInf);
    }
  }
  if (chance(rng, 0.3)) options.scale = static_cast<double>(pick(rng, -2, 2)) / 2;
  if (chance(rng, 0.3)) options.softcap = 0.5 + static_cast<double>(pick(rng, 0, 4));
  if (chance(rng, 0.3)) {
    options.dropout = chance(rng, 0.1) ? 1 : 0.25;
    options.dropout_keep = booleans(rng, {s.b, s.hq, s.tq, s.tk}, options.dropout == 1 ? 0 : 0.75);
  }
  if (chance(rng, 0.3)) options.score_function = wavy_scores();
  if (chance(rng, 0.3)) options.mask = options.mask & random_blocks(rng, s, std::max<std::int64_t>({s.tq, s.tk, 1}));
  options.return_weights = chance(rng, 0.3);  // without them the fused kernels may run
  return options;
}

inline Inputs random_inputs(std::mt19937& rng, DType dtype, std::int64_t least = 0) {
  Inputs in;
  const Sizes s = in.sizes = random_sizes(rng, least);
  in.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype, -2, 2);
  in.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype, -2, 2);
  in.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype, -2, 2);
  in.options = random_options(rng, s, dtype);
  return in;
}

// The element of t at the last dimensions of (b, h, i, j), as broadcasting reads it.
inline double broadcast_at(const Tensor& t, const std::vector<std::int64_t>& index) {
  Tensor at = t;
  for (std::size_t i = 0; i < t.rank(); ++i) {
    const std::int64_t want = index[index.size() - t.rank() + i];
    at = at.select(0, t.shape()[i] == 1 ? 0 : want);
  }
  return at.item();
}

// Returns the oracle's result, in float64.
inline AttentionResult by_definition(const Inputs& in) {
  const Sizes& s = in.sizes;
  const ::oracle::Result r = ::oracle::attention(::oracle::problem_of(in.q, in.k, in.v, in.options));
  const auto tensor_of = [](const ::oracle::Numbers& numbers, const Shape& shape) {
    std::vector<double> all;
    for (const ::oracle::Number& n : numbers) all.push_back(n.value);
    return tensor(all, shape);
  };
  return {tensor_of(r.output, {s.b, s.hq, s.tq, s.dv}), tensor_of(r.lse, {s.b, s.hq, s.tq}),
          tensor_of(r.weights, {s.b, s.hq, s.tq, s.tk})};
}

}  // namespace attn::test
