// Attention computed straightforwardly in double, element by element, and random problems to try it on.
#pragma once

#include <algorithm>
#include <vector>

#include "attn/attention.hpp"
#include "core/testing.hpp"

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

// The user's function of one score.
inline double changed(const ScoreFunction& f, double score, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) {
  if (!f) return score;
  const auto head = static_cast<std::int32_t>(h), token = static_cast<std::int32_t>(i);
  const ScoreTile64 tile{&score, 1, 1, 1, 1, b, j, &head, &token};
  f.forward64(&tile, f.user);
  return score;
}

// The score that softmax sees: -inf where the query may not see the key.
inline double masked_score(const Inputs& in, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Sizes& s = in.sizes;
  const AttentionOptions& o = in.options;
  const std::int64_t last = o.mask.align == Align::top_left ? i : i + s.tk - s.tq;
  if (o.mask.is_causal && j > last) return -kInf;
  if (o.mask.keep.defined() && broadcast_at(o.mask.keep, {b, h, i, j}) == 0) return -kInf;
  const Tensor& blocks = o.mask.block_keep;
  if (blocks.defined() && broadcast_at(blocks, {b, h, i / o.mask.block_query, j / o.mask.block_key}) == 0) return -kInf;
  double score = 0;
  for (std::int64_t c = 0; c < s.d; ++c) score += in.q.at({b, h, i, c}) * in.k.at({b, h / (s.hq / s.hkv), j, c});
  score *= o.scale.value_or(1 / std::sqrt(static_cast<double>(s.d)));
  if (o.softcap > 0) score = o.softcap * std::tanh(score / o.softcap);
  score = changed(o.score_function, score, b, h, i, j);
  if (o.mask.bias.defined()) score += broadcast_at(o.mask.bias, {b, h, i, j});
  return score;
}

// One row of weights and its log-sum-exp.
inline double softmax_row(std::vector<double>& row) {
  double most = -kInf, sum = 0;
  for (const double x : row) most = std::fmax(most, x);
  for (double& x : row) sum += x = most == -kInf ? 0 : std::exp(x - most);
  for (double& x : row) x = sum == 0 ? 0 : x / sum;
  return sum == 0 ? -kInf : most + std::log(sum);
}

inline AttentionResult oracle(const Inputs& in) {
  const Sizes& s = in.sizes;
  AttentionResult r{Tensor::zeros({s.b, s.hq, s.tq, s.dv}, DType::f64), Tensor::zeros({s.b, s.hq, s.tq}, DType::f64),
                    Tensor::zeros({s.b, s.hq, s.tq, s.tk}, DType::f64)};
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t h = 0; h < s.hq; ++h) {
      for (std::int64_t i = 0; i < s.tq; ++i) {
        std::vector<double> row;
        for (std::int64_t j = 0; j < s.tk; ++j) row.push_back(masked_score(in, b, h, i, j));
        r.lse.set({b, h, i}, softmax_row(row));
        for (std::int64_t j = 0; j < s.tk; ++j) {
          double w = row[static_cast<std::size_t>(j)];
          r.weights.set({b, h, i, j}, w);
          if (in.options.dropout > 0) {
            w = in.options.dropout_keep.at({b, h, i, j}) != 0 ? w / (1 - in.options.dropout) : 0;
          }
          for (std::int64_t c = 0; c < s.dv; ++c) {
            const double sum = r.output.at({b, h, i, c}) + w * in.v.at({b, h / (s.hq / s.hkv), j, c});
            r.output.set({b, h, i, c}, sum);
          }
        }
      }
    }
  }
  return r;
}

}  // namespace attn::test
