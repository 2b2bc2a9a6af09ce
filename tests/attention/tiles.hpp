// Random problems at sizes that fill and overrun the kernels' tiles, with every option.
#pragma once

#include <algorithm>

#include "attention/oracle.hpp"

namespace attn::test {

// Sizes from one element to several tiles, uneven; sometimes few queries, which takes the decode kernel.
inline Sizes tile_sizes(std::mt19937& rng) {
  Sizes s;
  s.b = pick(rng, 1, 2), s.hkv = pick(rng, 1, 2), s.hq = s.hkv * pick(rng, 1, 3);
  s.tq = chance(rng, 0.3) ? pick(rng, 1, 4) : pick(rng, 1, 150);
  s.tk = chance(rng, 0.2) ? pick(rng, 500, 1100) : pick(rng, 1, 300);
  s.d = pick(rng, 1, 70), s.dv = pick(rng, 1, 70);
  return s;
}

inline Tensor lengths(std::mt19937& rng, std::int64_t n, std::int64_t most) {
  Tensor t = Tensor::empty({n}, DType::i64);
  for (std::int64_t i = 0; i < n; ++i) t.data<std::int64_t>()[i] = pick(rng, 0, most);
  return t;
}

// 0, rising, `total`: n sequences, some of them empty.
inline Tensor starts(std::mt19937& rng, std::int64_t n, std::int64_t total) {
  Tensor t = lengths(rng, n + 1, total);
  auto* first = t.data<std::int64_t>();
  first[0] = 0, first[n] = total;
  std::sort(first, first + n + 1);
  return t;
}

inline RelativeBias random_relative_bias(std::mt19937& rng, std::int64_t hq, DType dtype = DType::f32) {
  const bool bidirectional = chance(rng, 0.5);
  const std::int64_t buckets = pick(rng, bidirectional ? 4 : 2, 40);
  return {uniform(rng, {buckets, hq}, dtype, -2, 2), bidirectional,
          pick(rng, buckets + 1, chance(rng, 0.5) ? 50 : 2000)};
}

inline void add_options(std::mt19937& rng, Inputs& in) {
  const Sizes& s = in.sizes;
  Mask& mask = in.options.mask;
  if (chance(rng, 0.4)) mask.window_left = pick(rng, 0, s.tk);
  if (chance(rng, 0.4)) mask.window_right = pick(rng, 0, s.tk);
  if (chance(rng, 0.3)) {
    mask.key_lengths = lengths(rng, s.b, s.tk);
  } else if (s.b == 1 && chance(rng, 0.5)) {
    const std::int64_t n = pick(rng, 1, 4);
    mask.query_starts = starts(rng, n, s.tq), mask.key_starts = starts(rng, n, s.tk);
  }
  if (chance(rng, 0.3)) in.options.alibi_slopes = uniform(rng, {s.hq}, DType::f32, 0, 0.5);
  if (chance(rng, 0.3)) in.options.sinks = uniform(rng, {s.hq}, DType::f32, -2, 2);
  if (chance(rng, 0.3)) {
    in.options.dropout = 0.3;
    in.options.dropout_keep = {};
    in.options.dropout_key = rng();
  }
  if (chance(rng, 0.2)) in.options.relative_bias = random_relative_bias(rng, s.hq);
  in.options.return_weights = chance(rng, 0.3);
  if (in.options.return_weights) in.options.weight_rows = lengths(rng, pick(rng, 0, 3), s.tq - 1);
}

// Positions that matter to masks, and sometimes far ones.
inline Offset random_offset(std::mt19937& rng, const Sizes& s, std::int64_t far) {
  if (chance(rng, 0.2)) return {};
  const auto position = [&] { return far + pick(rng, 0, s.tq + s.tk); };
  if (chance(rng, 0.5)) return position();
  Tensor each = Tensor::empty({s.b}, DType::i64);
  for (std::int64_t b = 0; b < s.b; ++b) each.data<std::int64_t>()[b] = position();
  return each;
}

inline void add_offsets(std::mt19937& rng, Inputs& in) {
  in.options.mask.align = Align::top_left;
  const std::int64_t far = chance(rng, 0.3) ? (std::int64_t{1} << 30) - 4000 : 0;
  in.options.query_offset = random_offset(rng, in.sizes, far);
  in.options.key_offset = random_offset(rng, in.sizes, far);
}

// Sometimes as a projection leaves it: (b, t, h, d) in memory.
inline Tensor by_token(std::mt19937& rng, const Tensor& t) {
  return chance(rng, 0.5) ? t : t.transpose(1, 2).clone().transpose(1, 2);
}

inline Inputs tile_inputs(std::mt19937& rng, DType dtype) {
  Inputs in;
  const Sizes s = in.sizes = tile_sizes(rng);
  in.q = by_token(rng, uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype));
  in.k = by_token(rng, uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype));
  in.v = by_token(rng, uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype));
  in.options = random_options(rng, s, DType::f32);
  if (in.options.dropout == 1) in.options.dropout = 0, in.options.dropout_keep = {};
  add_options(rng, in);
  return in;
}

inline std::string describe(const Inputs& in) {
  const Sizes& s = in.sizes;
  const AttentionOptions& o = in.options;
  return "q " + in.q.shape().str() + " k " + in.k.shape().str() + " dv " + std::to_string(s.dv) + " causal " +
         std::to_string(o.mask.is_causal) + " window " + std::to_string(o.mask.window_left) + "," +
         std::to_string(o.mask.window_right) + " lengths " + std::to_string(o.mask.key_lengths.defined()) +
         " sequences " + std::to_string(o.mask.query_starts.defined()) + " offsets " +
         std::to_string(o.query_offset.given()) + std::to_string(o.key_offset.given()) + " relative " +
         o.relative_bias.table.shape().str() + " to " + std::to_string(o.relative_bias.max_distance) + " alibi " +
         std::to_string(o.alibi_slopes.defined()) + " sinks " + std::to_string(o.sinks.defined()) + " dropout " +
         std::to_string(o.dropout) + " softcap " + std::to_string(o.softcap) + " score function " +
         std::to_string(bool(o.score_function)) + " blocks " +
         (o.mask.block_keep.defined() ? o.mask.block_keep.shape().str() + " of " + std::to_string(o.mask.block_query) +
                                            "," + std::to_string(o.mask.block_key)
                                      : "0");
}

// Returns the tolerance, as a share of the largest value: for sums of a few hundred products, each rounded, and for
// weights that are rounded to the dtype.
inline double tolerance(DType dtype) {
  if (dtype == DType::f32) return 32 * 0x1p-24;
  return dtype == DType::bf16 ? 4 * 0x1p-9 : 4 * 0x1p-12;
}

// The composed steps, which a trace asks for; in float32 with sums in double, quick under an emulator too.
inline AttentionResult exact(const Inputs& in) {
  Trace steps;
  return attention(in.q.to(DType::f32), in.k.to(DType::f32), in.v.to(DType::f32), in.options, &steps);
}

}  // namespace attn::test
