// Random problems for the forward on matrix instructions, and their rows in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attn/dtype.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {

using Random = std::mt19937_64;
using test::chance, test::pick;

inline float rounded(float x) { return static_cast<float>(bfloat16(x)); }

// Rows (b, h, t, width) in memory of their own that ends with the last element.
struct Operand {
  std::vector<float> floats;
  std::vector<bfloat16> halves;
  Rows rows{};

  Operand(Random& random, Element element, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t width) {
    const std::int64_t gap = chance(random, 0.5) ? 0 : pick(random, 1, 40);
    if (chance(random, 0.5)) {  // (b, h, t, width)
      rows.token = width + gap, rows.head = t * rows.token, rows.batch = h * rows.head;
    } else {  // (b, t, h, width)
      rows.head = width + gap, rows.token = h * rows.head, rows.batch = t * rows.token;
    }
    const std::int64_t size =
        b * h * t * width == 0 ? 0 : (b - 1) * rows.batch + (h - 1) * rows.head + (t - 1) * rows.token + width;
    std::normal_distribution<float> normal;
    floats.resize(static_cast<std::size_t>(size));
    for (float& x : floats) x = normal(random);
    if (element == Element::bf16) {
      for (float x : floats) halves.emplace_back(x);
      floats.clear();
    }
    rows.data = element == Element::bf16 ? static_cast<void*>(halves.data()) : floats.data();
  }

  double at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) const {
    const auto i = static_cast<std::size_t>(b * rows.batch + h * rows.head + t * rows.token + c);
    return static_cast<double>(floats.empty() ? static_cast<float>(halves[i]) : floats[i]);
  }
};

// A problem, and all that its pointers look at.
struct Case {
  Problem p{};
  std::unique_ptr<Operand> q, k, v;
  std::vector<std::int32_t> first, last;
  std::unique_ptr<bool[]> keep, dropout;
  std::vector<float> bias;

  double cell(const auto& grid, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return grid.data[b * grid.batch + h * grid.head + i * grid.query + j * grid.key];
  }
};

// Cells of a mask or bias, broadcast over a random choice of its dimensions.
template <class T, class F>
inline void fill_grid(Random& random, const Problem& p, Grid<T>& grid, std::int64_t& size, F&& allocate) {
  size = 1;
  const auto stride = [&](std::int64_t n) {
    if (chance(random, 0.3)) return std::int64_t{0};
    const std::int64_t step = size;
    size *= n;
    return step;
  };
  grid.key = stride(p.tk), grid.query = stride(p.tq), grid.head = stride(p.hq), grid.batch = stride(p.batch);
  grid.data = allocate(static_cast<std::size_t>(size));
}

inline std::unique_ptr<bool[]> booleans(Random& random, std::size_t n, double p) {
  auto cells = std::make_unique<bool[]>(n);
  for (std::size_t i = 0; i < n; ++i) cells[i] = chance(random, p);
  return cells;
}

inline void draw_masks(Random& random, Case& c) {
  Problem& p = c.p;
  std::int64_t size = 0;
  p.dropout.factor = 1;
  if (chance(random, 0.3)) {
    fill_grid(random, p, p.keep, size, [&](std::size_t n) { return (c.keep = booleans(random, n, 0.7)).get(); });
  }
  if (chance(random, 0.3)) {
    fill_grid(random, p, p.dropout.keep, size,
              [&](std::size_t n) { return (c.dropout = booleans(random, n, 0.6)).get(); });
    p.dropout.factor = 1 / 0.6f;
  }
  if (chance(random, 0.3)) {
    std::normal_distribution<float> normal;
    fill_grid(random, p, p.bias, size, [&](std::size_t n) {
      c.bias.resize(n);
      for (float& x : c.bias) x = chance(random, 0.1) ? -std::numeric_limits<float>::infinity() : 3 * normal(random);
      return c.bias.data();
    });
  }
}

// Everything; a causal edge; or any interval, empty ones among them.
inline void draw_intervals(Random& random, Case& c) {
  Problem& p = c.p;
  const std::int64_t kind = pick(random, 0, 2);
  for (std::int64_t i = 0; i < p.tq; ++i) {
    const std::int64_t from = kind == 2 ? pick(random, 0, p.tk) : 0;
    const std::int64_t to = kind == 0 ? p.tk : kind == 1 ? std::min(p.tk, i + 1) : pick(random, 0, p.tk);
    c.first.push_back(static_cast<std::int32_t>(from)), c.last.push_back(static_cast<std::int32_t>(to));
  }
  p.first = c.first.data(), p.last = c.last.data();
}

// Float32 at highest precision goes to the tiles from 128 queries and keys on.
inline bool tiles_take_large(Element element, Precision precision) {
  return element == Element::f32 && precision == Precision::highest;
}

inline Case draw_case(Random& random, Element element, Precision precision) {
  Case c;
  Problem& p = c.p;
  const bool large = chance(random, 0.1), tiled = tiles_take_large(element, precision) && chance(random, 0.5);
  p.batch = pick(random, 1, 2), p.hkv = pick(random, 1, 2), p.hq = p.hkv * pick(random, 1, 3);
  p.tq = tiled ? pick(random, 128, 200) : pick(random, 1, large ? 700 : 70);
  p.tk = tiled ? pick(random, 128, 400) : pick(random, 1, large ? 700 : 300);
  const auto width = [&] { return chance(random, 0.4) ? 32 * pick(random, 1, 4) : pick(random, 1, 140); };
  p.d = width(), p.dv = width();
  p.element = element, p.precision = precision;
  c.q = std::make_unique<Operand>(random, element, p.batch, p.hq, p.tq, p.d), p.q = c.q->rows;
  c.k = std::make_unique<Operand>(random, element, p.batch, p.hkv, p.tk, p.d), p.k = c.k->rows;
  c.v = std::make_unique<Operand>(random, element, p.batch, p.hkv, p.tk, p.dv), p.v = c.v->rows;
  const float scales[] = {1 / std::sqrt(static_cast<float>(p.d)), 1 / std::sqrt(static_cast<float>(p.d)), -0.3f, 0,
                          1e-30f};
  p.scale = scales[pick(random, 0, 4)];
  p.softcap = chance(random, 0.25) ? 2.5f : 0;
  draw_intervals(random, c);
  draw_masks(random, c);
  return c;
}

// Contiguous (b, hq, tq, dv).
struct Result {
  std::vector<float> output, lse;
  bool finite = true;  // as the kernels say
  bool operator==(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    return same(output, other.output) && same(lse, other.lse);
  }
};

// Runs the tasks of each phase in a random order, in memory full of NaN.
inline Result run(const Kernels& kernels, const Problem& p, Random& random) {
  const auto outputs = static_cast<std::size_t>(p.batch * p.hq * p.tq * p.dv);
  Result result{std::vector<float>(outputs, 77.f), std::vector<float>(static_cast<std::size_t>(p.batch * p.hq * p.tq))};
  std::vector<bfloat16> halves(outputs, bfloat16(77.f));
  void* data = p.element == Element::f32 ? static_cast<void*>(result.output.data()) : halves.data();
  const ForwardResult out{
      {data, p.hq * p.tq * p.dv, p.tq * p.dv, p.dv}, result.lse.data(), p.tq, p.element, &result.finite};

  const ForwardPlan plan = plan_tiles(p, kernels, 1);
  const Poisoned shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    for (const std::int64_t task : shuffled(plan.tasks[phase], random)) {
      const Poisoned scratch(plan.scratch);
      plan.kernel->run(p, plan, out, phase, task, shared.data.get(), scratch.data.get());
    }
  }
  if (p.element == Element::bf16) {
    std::transform(halves.begin(), halves.end(), result.output.begin(),
                   [](bfloat16 x) { return static_cast<float>(x); });
  }
  return result;
}

// A row in float64: output (dv), Σ weight · |v| (dv), log-sum-exp, and how large the terms of a score can be.
struct Row {
  std::vector<double> output, magnitude;
  double lse, terms = 0;
};

inline Row reference_row(const Case& c, std::int64_t b, std::int64_t h, std::int64_t i) {
  const Problem& p = c.p;
  const bool rounds = p.element == Element::f32 && p.precision == Precision::medium;
  const auto value = [&](double x) { return rounds ? static_cast<double>(rounded(static_cast<float>(x))) : x; };
  const std::int64_t kv = h / (p.hq / p.hkv);
  const auto at = static_cast<std::size_t>(i);
  Row row{std::vector<double>(static_cast<std::size_t>(p.dv)), std::vector<double>(static_cast<std::size_t>(p.dv)), 0};

  std::vector<double> s(static_cast<std::size_t>(p.tk), -std::numeric_limits<double>::infinity());
  double most = s.empty() ? 0 : s[0];
  for (std::int64_t j = c.first[at]; j < c.last[at]; ++j) {
    if (p.keep.data && c.cell(p.keep, b, h, i, j) == 0) continue;
    double sum = 0, terms = 0;
    for (std::int64_t d = 0; d < p.d; ++d) {
      const double term = value(c.q->at(b, h, i, d)) * value(c.k->at(b, kv, j, d));
      sum += term, terms += std::abs(term);
    }
    row.terms = std::max(row.terms, terms * std::abs(static_cast<double>(p.scale)));
    double score = sum * static_cast<double>(p.scale);
    if (p.softcap > 0) score = static_cast<double>(p.softcap) * std::tanh(score / static_cast<double>(p.softcap));
    if (p.bias.data) score += c.cell(p.bias, b, h, i, j);
    s[static_cast<std::size_t>(j)] = score;
    most = std::max(most, score);
  }
  double total = 0;
  for (double score : s) total += std::isinf(score) ? 0 : std::exp(score - most);
  row.lse = std::isinf(most) ? most : most + std::log(total);
  for (std::int64_t j = 0; j < p.tk && !std::isinf(most); ++j) {
    double weight = std::exp(s[static_cast<std::size_t>(j)] - row.lse);
    if (p.dropout.keep.data) {
      weight *= c.cell(p.dropout.keep, b, h, i, j) * static_cast<double>(p.dropout.factor);
    }
    for (std::int64_t d = 0; d < p.dv && weight > 0; ++d) {
      const double v = value(c.v->at(b, kv, j, d));
      row.output[static_cast<std::size_t>(d)] += weight * v;
      row.magnitude[static_cast<std::size_t>(d)] += weight * std::abs(v);
    }
  }
  return row;
}

}  // namespace attn::kernels
