// Random problems for the fused gradient.
#pragma once

#include <random>

#include "attention/element.hpp"
#include "attn/attention.hpp"
#include "kernels/units.hpp"

namespace attn {

using Random = std::mt19937_64;
using test::booleans, test::chance, test::pick;

// (b, h, t, d) in one of the layouts that callers have: contiguous, (b, t, h, d) transposed, or part of wider rows.
inline Tensor layout(Random& random, const Shape& s, DType dtype) {
  const std::int64_t kind = pick(random, 0, 2);
  if (kind == 0) return Tensor::empty(s, dtype);
  if (kind == 1) return Tensor::empty({s[0], s[2], s[1], s[3]}, dtype).transpose(1, 2);
  return Tensor::empty({s[0], s[1], s[2], s[3] + 5}, dtype).slice(3, 3, s[3] + 3);
}

inline Tensor normal(Random& random, const Shape& shape, DType dtype) {
  const Tensor out = layout(random, shape, dtype);
  out.copy_from(test::normal(random, shape));
  return out;
}

// A shape that broadcasts to (b, h, tq, tk).
inline Shape broadcast_shape(Random& random, const Shape& full) {
  Shape shape = full;
  for (std::int64_t& size : shape) {
    if (chance(random, 0.4)) size = 1;
  }
  return shape;
}

struct Case {
  std::int64_t b, hq, hkv, tq, tk, d, dv;
  Tensor q, k, v, d_output, keep, bias, dropout_keep, slopes;
  Tensor blocks;  // (b, hq, blocks of queries, blocks of keys)
  std::int64_t block_query = 1, block_key = 1;
  double scale, softcap = 0, dropout = 0;
  kernels::Precision precision = kernels::Precision::highest;
  std::vector<std::int32_t> first, last, centre;  // (tq)

  Shape scores() const { return {b, hq, tq, tk}; }
  std::string str() const {
    return "q " + q.shape().str() + " k " + k.shape().str() + " v " + v.shape().str() + " " +
           std::string(name(q.dtype())) + (keep.defined() ? " keep " + keep.shape().str() : "") +
           (bias.defined() ? " bias " + bias.shape().str() : "") + " softcap " + std::to_string(softcap) + " dropout " +
           std::to_string(dropout) + (slopes.defined() ? " alibi" : "") + (blocks.defined() ? " blocks" : "") +
           (precision == kernels::Precision::medium ? " medium"
            : precision == kernels::Precision::high ? " high"
                                                    : "");
  }
};

inline void draw_intervals(Random& random, Case& c) {
  const std::int64_t kind = pick(random, 0, 3);
  const std::int64_t left = pick(random, 0, c.tk), length = pick(random, 0, c.tk);
  for (std::int64_t r = 0; r < c.tq; ++r) {
    std::int64_t first = 0, last = c.tk;
    if (kind == 1) last = std::min(r + 1, c.tk);                                                        // causal
    if (kind == 2) first = std::max<std::int64_t>(r - left, 0), last = std::min(first + length, c.tk);  // window
    if (kind == 3) first = pick(random, 0, c.tk), last = pick(random, 0, c.tk);
    c.first.push_back(static_cast<std::int32_t>(first));
    c.last.push_back(static_cast<std::int32_t>(last));
    c.centre.push_back(static_cast<std::int32_t>(r));
  }
}

inline void draw_tensors(Random& random, Case& c, DType dtype) {
  c.q = normal(random, {c.b, c.hq, c.tq, c.d}, dtype);
  c.k = normal(random, {c.b, c.hkv, c.tk, c.d}, dtype);
  c.v = normal(random, {c.b, c.hkv, c.tk, c.dv}, dtype);
  c.d_output = normal(random, {c.b, c.hq, c.tq, c.dv}, dtype);
  c.scale = (chance(random, 0.5) ? 1 : 2) / std::sqrt(static_cast<double>(c.d));
}

inline void draw_options(Random& random, Case& c) {
  draw_intervals(random, c);
  if (chance(random, 0.3)) c.softcap = 1.5;
  if (chance(random, 0.3)) c.keep = booleans(random, broadcast_shape(random, c.scores()), 0.7);
  if (chance(random, 0.4)) {
    c.bias = normal(random, broadcast_shape(random, c.scores()), DType::f32).clone();
    for (std::int64_t i = 0; i < c.bias.numel(); ++i) {
      if (chance(random, 0.05)) c.bias.data<float>()[i] = -std::numeric_limits<float>::infinity();
    }
  }
  if (chance(random, 0.3)) c.dropout = 0.25, c.dropout_keep = booleans(random, c.scores(), 0.75);
  if (chance(random, 0.2)) {
    c.slopes = Tensor::empty({c.hq});
    for (std::int64_t h = 0; h < c.hq; ++h) c.slopes.set({h}, 0.1 * static_cast<double>(h + 1));
  }
  if (chance(random, 0.2)) {
    c.block_query = pick(random, 1, 40), c.block_key = pick(random, 1, 70);
    const auto count = [](std::int64_t n, std::int64_t block) { return (n + block - 1) / block; };
    c.blocks = booleans(random, {c.b, c.hq, count(c.tq, c.block_query), count(c.tk, c.block_key)}, 0.4);
  }
}

inline Case draw_case(Random& random) {
  Case c{};
  const bool big = chance(random, 0.3);
  c.b = pick(random, 1, 2), c.hkv = pick(random, 1, 3), c.hq = c.hkv * pick(random, 1, 3);
  c.tq = pick(random, 1, big ? 200 : 40), c.tk = pick(random, 1, big ? 500 : 40);
  c.d = pick(random, 1, chance(random, 0.3) ? 140 : 40), c.dv = chance(random, 0.5) ? c.d : pick(random, 1, 80);
  const DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::bf16, DType::f16};
  const std::int64_t kind = pick(random, 0, 4);
  draw_tensors(random, c, dtypes[kind]);
  if (kind == 1) c.precision = kernels::Precision::medium;
  draw_options(random, c);
  return c;
}

// Draws a case in float32, so large that a matrix kernel multiplies parts in bf16 at each precision.
inline Case draw_large(Random& random) {
  Case c{};
  c.b = pick(random, 1, 2), c.hkv = pick(random, 1, 2), c.hq = c.hkv * pick(random, 1, 2);
  c.tq = pick(random, 128, 180), c.tk = pick(random, 128, 300), c.d = pick(random, 64, 140),
  c.dv = pick(random, 64, 80);
  draw_tensors(random, c, DType::f32);
  if (chance(random, 0.5)) c.precision = kernels::Precision::high;
  draw_options(random, c);
  return c;
}

inline kernels::Rows rows(const Tensor& t) { return {t.raw(), t.stride(0), t.stride(1), t.stride(2)}; }

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Case& c) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(c.scores());
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

inline kernels::Problem problem(const Case& c) {
  const DType dtype = c.q.dtype();
  kernels::Problem p{c.b, c.hq, c.hkv, c.tq, c.tk, c.d, c.dv, element(dtype), rows(c.q), rows(c.k), rows(c.v)};
  p.scale = static_cast<float>(c.scale), p.softcap = static_cast<float>(c.softcap);
  p.first = c.first.data(), p.last = c.last.data();
  p.keep = grid<bool>(c.keep, c), p.bias = grid<float>(c.bias, c), p.dropout.keep = grid<bool>(c.dropout_keep, c);
  p.dropout.factor = static_cast<float>(1 / (1 - c.dropout));
  p.precision = c.precision;
  if (c.slopes.defined()) p.alibi_slopes = c.slopes.data<float>(), p.centre = c.centre.data();
  if (c.blocks.defined()) {
    const Tensor& t = c.blocks;
    p.blocks.keep = {t.data<bool>(), t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
    p.blocks.query = c.block_query, p.blocks.key = c.block_key;
  }
  return p;
}

// Returns which keys each query sees, by masks, blocks and intervals.
inline Tensor seen_keys(const Case& c) {
  const Tensor seen = Tensor::zeros(c.scores(), DType::boolean);
  const Tensor keep = c.keep.defined() ? c.keep.expand(c.scores()) : Tensor{};
  for (std::int64_t i = 0; i < seen.numel(); ++i) {
    const std::int64_t key = i % c.tk, query = i / c.tk % c.tq, h = i / c.tk / c.tq % c.hq, b = i / c.tk / c.tq / c.hq;
    const auto at = static_cast<std::size_t>(query);
    bool kept = !keep.defined() || keep.at({b, h, query, key}) != 0;
    if (c.blocks.defined()) kept = kept && c.blocks.at({b, h, query / c.block_query, key / c.block_key}) != 0;
    seen.data<bool>()[i] = kept && key >= c.first[at] && key < c.last[at];
  }
  return seen;
}

// `rounds`: of what the kernel multiplies, float32 numbers rounded to bf16.
inline AttentionGradient reference(const Case& c, bool rounds) {
  const auto wide = [](const Tensor& t) { return t.defined() ? t.to(DType::f64) : t; };
  const auto operand = [&](const Tensor& t) { return rounds ? t.to(DType::bf16).to(DType::f64) : t.to(DType::f64); };
  AttentionOptions options;
  options.mask.keep = seen_keys(c);
  options.mask.bias = wide(c.bias);
  options.scale = c.scale;
  options.softcap = c.softcap;
  options.dropout = c.dropout;
  options.dropout_keep = c.dropout_keep;
  options.alibi_slopes = c.slopes;
  return attention_backward(operand(c.d_output), operand(c.q), operand(c.k), operand(c.v), options);
}

}  // namespace attn
