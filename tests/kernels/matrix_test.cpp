// The forward on bf16 matrix instructions: against float64, and bit for bit against itself in other company. Where
// a processor has no AMX, the AMX kernel runs on emulated tiles: its logic is tested everywhere, its speed nowhere
// but there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attn/dtype.hpp"
#include "kernels/processor.hpp"
#include "kernels/targets.hpp"

#if defined(ATTN_AMX_EMULATED)

namespace attn::kernels {

Kernels kernels_amx_emulated();

namespace {

using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

bool chance(Random& random, double p) { return std::bernoulli_distribution(p)(random); }

float rounded(float x) { return static_cast<float>(bfloat16(x)); }

// Rows (b, h, t, width) in memory of their own that ends with the last element.
struct Operand {
  std::vector<float> floats;
  std::vector<bfloat16> halves;
  Rows rows{};

  Operand(Random& random, Element element, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t width) {
    const std::int64_t gap = chance(random, 0.5) ? 0 : draw(random, 1, 40);
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
void fill_grid(Random& random, const Problem& p, Grid<T>& grid, std::int64_t& size, F&& allocate) {
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

std::unique_ptr<bool[]> booleans(Random& random, std::size_t n, double p) {
  auto cells = std::make_unique<bool[]>(n);
  for (std::size_t i = 0; i < n; ++i) cells[i] = chance(random, p);
  return cells;
}

void draw_masks(Random& random, Case& c) {
  Problem& p = c.p;
  std::int64_t size = 0;
  p.dropout_factor = 1;
  if (chance(random, 0.3)) {
    fill_grid(random, p, p.keep, size, [&](std::size_t n) { return (c.keep = booleans(random, n, 0.7)).get(); });
  }
  if (chance(random, 0.3)) {
    fill_grid(random, p, p.dropout_keep, size,
              [&](std::size_t n) { return (c.dropout = booleans(random, n, 0.6)).get(); });
    p.dropout_factor = 1 / 0.6f;
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
void draw_intervals(Random& random, Case& c) {
  Problem& p = c.p;
  const std::int64_t kind = draw(random, 0, 2), rows = chance(random, 0.5) ? p.batch : 1;
  p.interval_batch = rows == 1 ? 0 : p.tq;
  for (std::int64_t i = 0; i < rows * p.tq; ++i) {
    const std::int64_t from = kind == 2 ? draw(random, 0, p.tk) : 0;
    const std::int64_t to = kind == 0 ? p.tk : kind == 1 ? std::min(p.tk, i % p.tq + 1) : draw(random, 0, p.tk);
    c.first.push_back(static_cast<std::int32_t>(from)), c.last.push_back(static_cast<std::int32_t>(to));
  }
  p.first = c.first.data(), p.last = c.last.data();
}

// Float32 at highest precision goes to the tiles from 128 queries and keys on.
bool tiles_take_large(Element element, Precision precision) {
  return element == Element::f32 && precision == Precision::highest;
}

Case draw_case(Random& random, Element element, Precision precision) {
  Case c;
  Problem& p = c.p;
  const bool large = chance(random, 0.1), tiled = tiles_take_large(element, precision) && chance(random, 0.5);
  p.batch = draw(random, 1, 2), p.hkv = draw(random, 1, 2), p.hq = p.hkv * draw(random, 1, 3);
  p.tq = tiled ? draw(random, 128, 200) : draw(random, 1, large ? 700 : 70);
  p.tk = tiled ? draw(random, 128, 400) : draw(random, 1, large ? 700 : 300);
  const auto width = [&] { return chance(random, 0.4) ? 32 * draw(random, 1, 4) : draw(random, 1, 140); };
  p.d = width(), p.dv = width();
  p.element = element, p.precision = precision;
  c.q = std::make_unique<Operand>(random, element, p.batch, p.hq, p.tq, p.d), p.q = c.q->rows;
  c.k = std::make_unique<Operand>(random, element, p.batch, p.hkv, p.tk, p.d), p.k = c.k->rows;
  c.v = std::make_unique<Operand>(random, element, p.batch, p.hkv, p.tk, p.dv), p.v = c.v->rows;
  const float scales[] = {1 / std::sqrt(static_cast<float>(p.d)), 1 / std::sqrt(static_cast<float>(p.d)), -0.3f, 0,
                          1e-30f};
  p.scale = scales[draw(random, 0, 4)];
  p.softcap = chance(random, 0.25) ? 2.5f : 0;
  draw_intervals(random, c);
  draw_masks(random, c);
  return c;
}

// Contiguous (b, hq, tq, dv).
struct Result {
  std::vector<float> output, lse;
  bool operator==(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    return same(output, other.output) && same(lse, other.lse);
  }
};

// Runs the tasks of each phase in a random order, in memory full of NaN.
Result run(const Kernels& kernels, const Problem& p, Random& random) {
  const auto outputs = static_cast<std::size_t>(p.batch * p.hq * p.tq * p.dv);
  Result result{std::vector<float>(outputs, 77.f), std::vector<float>(static_cast<std::size_t>(p.batch * p.hq * p.tq))};
  std::vector<bfloat16> halves(outputs, bfloat16(77.f));
  void* data = p.element == Element::f32 ? static_cast<void*>(result.output.data()) : halves.data();
  const ForwardResult out{{data, p.hq * p.tq * p.dv, p.tq * p.dv, p.dv}, result.lse.data(), p.tq, p.element};

  const auto poisoned = [](std::size_t bytes) {
    std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
    if (bytes > 0) std::memset(memory.get(), 0xff, bytes);
    return memory;
  };
  const ForwardPlan plan = plan_tiles(p, kernels);
  const auto shared = poisoned(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    std::vector<std::int64_t> tasks(static_cast<std::size_t>(plan.tasks[phase]));
    std::iota(tasks.begin(), tasks.end(), 0);
    std::shuffle(tasks.begin(), tasks.end(), random);
    for (std::int64_t task : tasks) {
      const auto scratch = poisoned(plan.scratch);
      plan.kernel->run(p, plan, out, phase, task, shared.get(), scratch.get());
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

Row reference_row(const Case& c, std::int64_t b, std::int64_t h, std::int64_t i) {
  const Problem& p = c.p;
  const bool rounds = p.element == Element::f32 && p.precision == Precision::medium;
  const auto value = [&](double x) { return rounds ? static_cast<double>(rounded(static_cast<float>(x))) : x; };
  const std::int64_t kv = h / (p.hq / p.hkv);
  const auto at = static_cast<std::size_t>(b * p.interval_batch + i);
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
    if (p.dropout_keep.data) {
      weight *= c.cell(p.dropout_keep, b, h, i, j) * static_cast<double>(p.dropout_factor);
    }
    for (std::int64_t d = 0; d < p.dv && weight > 0; ++d) {
      const double v = value(c.v->at(b, kv, j, d));
      row.output[static_cast<std::size_t>(d)] += weight * v;
      row.magnitude[static_cast<std::size_t>(d)] += weight * std::abs(v);
    }
  }
  return row;
}

// Rounding errors: of a product's numbers (half an ulp of what the parts keep), of a weight, of the output.
void expect_close(const Case& c, const Result& result) {
  const Problem& p = c.p;
  const bool high = p.element == Element::f32 && p.precision == Precision::high;
  const double kFloat = std::ldexp(1, -24), kBf16 = std::ldexp(1, -8), kHigh = std::ldexp(1, -16);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const Row row = reference_row(c, b, h, i);
        const auto at = static_cast<std::size_t>((b * p.hq + h) * p.tq + i);
        if (std::isinf(row.lse)) {
          ASSERT_EQ(result.lse[at], -std::numeric_limits<float>::infinity());
        } else {
          // A score's error; 8 and 16 for the scores' and the softmax's own arithmetic in float32.
          const double in_score = row.terms * (high ? 3 * kHigh : 8 * kFloat) + 16 * kFloat * (1 + std::abs(row.lse));
          const bool highest = p.element == Element::f32 && p.precision == Precision::highest;
          const double in_sum = highest || high ? 0 : std::ldexp(1, -18);  // exponentials for weights in bf16
          ASSERT_NEAR(static_cast<double>(result.lse[at]), row.lse, in_score + in_sum + 16 * kFloat) << b << h << i;
          const double in_weight = 2 * in_score + (highest ? 0 : high ? 3 * kHigh : kBf16) + 16 * kFloat;
          for (std::int64_t d = 0; d < p.dv; ++d) {
            const auto e = static_cast<std::size_t>(d);
            const double out = row.output[e], in_output = p.element == Element::bf16 ? kBf16 * std::abs(out) : 0;
            ASSERT_NEAR(static_cast<double>(result.output[at * static_cast<std::size_t>(p.dv) + e]), out,
                        in_weight * row.magnitude[e] + in_output * 1.01 + 1e-30)
                << "b " << b << " h " << h << " i " << i << " d " << d;
          }
          continue;
        }
        for (std::int64_t d = 0; d < p.dv; ++d) {
          ASSERT_EQ(result.output[at * static_cast<std::size_t>(p.dv) + static_cast<std::size_t>(d)], 0);
        }
      }
    }
  }
}

std::string words(const Problem& p) {
  std::string text;
  const std::pair<const char*, std::int64_t> sizes[] = {{"b", p.batch}, {"hq", p.hq}, {"hkv", p.hkv}, {"tq", p.tq},
                                                        {"tk", p.tk},   {"d", p.d},   {"dv", p.dv}};
  for (const auto& [name, size] : sizes) text += std::string(name) + " " + std::to_string(size) + ", ";
  return text + "scale " + std::to_string(p.scale) + (p.softcap > 0 ? ", softcap" : "") +
         (p.keep.data ? ", keep" : "") + (p.bias.data ? ", bias" : "") + (p.dropout_keep.data ? ", dropout" : "");
}

struct Kind {
  const char* name;
  Element element;
  Precision precision;
};
constexpr Kind kKinds[] = {{"float32", Element::f32, Precision::highest},  // where it is small AVX-512's, kept
                           {"bf16", Element::bf16, Precision::highest},
                           {"medium", Element::f32, Precision::medium},
                           {"high", Element::f32, Precision::high}};

class Matrix : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string isa = GetParam();
    if (isa == "amx_emulated") {
      if (!has_avx512bf16()) GTEST_SKIP() << "the emulation of AMX needs avx512bf16";
      kernels_ = kernels_amx_emulated();
      return;
    }
    for (const Target& target : targets()) {
      if (target.isa != isa) continue;
      if (!target.supported) GTEST_SKIP() << "this processor has no " << isa;
      kernels_ = *target.kernels;
    }
  }

  static const Kernels& avx512_kernels() {
    return *std::find_if(targets().begin(), targets().end(), [](const Target& t) {
              return t.isa == "avx512";
            })->kernels;
  }

  // A float32 product of three parts is not faster than float32 on vdpbf16ps.
  bool takes(const Kind& kind) const {
    return kind.precision != Precision::high || std::string(GetParam()) != "avx512bf16";
  }

  Kernels kernels_{};
};

INSTANTIATE_TEST_SUITE_P(Targets, Matrix, testing::Values("avx512bf16", "amx_emulated", "amx"),
                         [](const auto& target) { return std::string(target.param); });

TEST_P(Matrix, AgreesWithFloat64) {
  for (const Kind& kind : kKinds) {
    if (!takes(kind)) continue;
    for (unsigned seed = 0; seed < 60; ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      SCOPED_TRACE(std::string(kind.name) + ", seed " + std::to_string(seed) + ": " + words(c.p));
      expect_close(c, run(kernels_, c.p, random));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Matrix, ResultsDoNotDependOnTheOrderOfTasks) {
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 100; seed < 120; ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      EXPECT_EQ(run(kernels_, c.p, random), run(kernels_, c.p, random)) << kind.name << ", seed " << seed;
    }
  }
}

// Any one query of any one batch item and head, computed alone: the same bits. Float32 at highest precision, where
// tiles take it from so many queries on, in the company of that query itself.
TEST_P(Matrix, ARowDoesNotDependOnOtherRows) {
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 200; seed < 240; ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      const Problem& p = c.p;
      const Result all = run(kernels_, p, random);
      const std::int64_t b = draw(random, 0, p.batch - 1), h = draw(random, 0, p.hq - 1), i = draw(random, 0, p.tq - 1);
      const std::int64_t kv = h / (p.hq / p.hkv), bytes = p.element == Element::f32 ? 4 : 2;
      Problem one = p;
      one.batch = one.hq = one.hkv = 1;
      const bool repeats = tiles_take_large(p.element, p.precision);
      if (!repeats) one.tq = 1;
      const auto move = [&](Rows& rows, std::int64_t head, std::int64_t token) {
        rows.data = static_cast<char*>(rows.data) + (b * rows.batch + head * rows.head + token * rows.token) * bytes;
      };
      move(one.q, h, i), move(one.k, kv, 0), move(one.v, kv, 0);
      if (repeats) one.q.token = 0;
      const auto at_query = static_cast<std::size_t>(b * p.interval_batch + i);
      const std::vector<std::int32_t> first(static_cast<std::size_t>(one.tq), c.first[at_query]);
      const std::vector<std::int32_t> last(static_cast<std::size_t>(one.tq), c.last[at_query]);
      one.first = first.data(), one.last = last.data();
      const auto shift = [&](auto& grid) {
        if (grid.data) grid.data += b * grid.batch + h * grid.head + i * grid.query, grid.query = 0;
      };
      shift(one.keep), shift(one.bias), shift(one.dropout_keep);
      const auto at = (b * p.hq + h) * p.tq + i;
      const Result row{{all.output.begin() + at * p.dv, all.output.begin() + (at + 1) * p.dv},
                       {all.lse[static_cast<std::size_t>(at)]}};
      Result alone = run(kernels_, one, random);
      alone.output.resize(static_cast<std::size_t>(p.dv)), alone.lse.resize(1);
      EXPECT_EQ(alone, row) << kind.name << ", seed " << seed << ": " << words(p);
    }
  }
}

// tq queries and tk keys of d, all seen.
Case plain_case(Random& random, Precision precision, std::int64_t tq, std::int64_t tk, std::int64_t d) {
  Case c;
  Problem& p = c.p;
  p = {1, 1, 1, tq, tk, d, d, Element::f32};
  c.q = std::make_unique<Operand>(random, p.element, 1, 1, tq, d), p.q = c.q->rows;
  c.k = std::make_unique<Operand>(random, p.element, 1, 1, tk, d), p.k = c.k->rows;
  c.v = std::make_unique<Operand>(random, p.element, 1, 1, tk, d), p.v = c.v->rows;
  p.scale = 1 / std::sqrt(static_cast<float>(d)), p.dropout_factor = 1, p.precision = precision;
  c.first.assign(static_cast<std::size_t>(tq), 0), c.last.assign(c.first.size(), static_cast<std::int32_t>(tk));
  p.first = c.first.data(), p.last = c.last.data();
  return c;
}

// Of all outputs, against float64: root of the mean square, and the largest; likewise the norm, and of log-sum-exps.
struct Errors {
  double rms, most, norm, lse;
};

Errors errors_of(const Case& c, const Result& result) {
  const Problem& p = c.p;
  Errors e{};
  for (std::int64_t i = 0; i < p.tq; ++i) {
    const Row row = reference_row(c, 0, 0, i);
    const double lse = static_cast<double>(result.lse[static_cast<std::size_t>(i)]) - row.lse;
    e.lse += lse * lse;
    for (std::int64_t d = 0; d < p.dv; ++d) {
      const double want = row.output[static_cast<std::size_t>(d)];
      const double error = static_cast<double>(result.output[static_cast<std::size_t>(i * p.dv + d)]) - want;
      e.rms += error * error, e.norm += want * want, e.most = std::max(e.most, std::abs(error));
    }
  }
  const auto n = static_cast<double>(p.tq * p.dv);
  return {std::sqrt(e.rms / n), e.most, std::sqrt(e.norm / n), std::sqrt(e.lse / static_cast<double>(p.tq))};
}

TEST_P(Matrix, HighPrecisionIsWithin4eMinus5OfFloat64) {
  if (!takes(kKinds[3])) GTEST_SKIP() << "float32 is faster here";
  for (std::int64_t d : {64, 128}) {
    Random random(static_cast<unsigned>(d));
    const Case c = plain_case(random, Precision::high, 100, 500, d);
    const Errors e = errors_of(c, run(kernels_, c.p, random));
    EXPECT_LE(e.rms / e.norm, 4e-5) << "d " << d;
  }
}

// Against float64, no further off than float32's own multiply-adds; scores of the usual size, and 8 times it.
TEST_P(Matrix, HighestPrecisionIsAsExactAsAvx512s) {
  for (std::int64_t d : {32, 64, 128}) {
    for (float scale : {1.f, 8.f}) {
      Random random(static_cast<unsigned>(d));
      Case c = plain_case(random, Precision::highest, 150, 700, d);
      c.p.scale *= scale;
      const Errors e = errors_of(c, run(kernels_, c.p, random)),
                   avx512 = errors_of(c, run(avx512_kernels(), c.p, random));
      EXPECT_LE(e.rms, avx512.rms * 1.02) << "d " << d << " scale " << scale;
      EXPECT_LE(e.most, avx512.most * 1.1) << "d " << d << " scale " << scale;
      EXPECT_LE(e.lse, avx512.lse * 1.1 + std::ldexp(1, -25)) << "d " << d << " scale " << scale;  // its last rounding
    }
  }
}

// Infinities, NaN and the largest numbers in one place of q, k or v: a row is as AVX-512's, or its log-sum-exp is not
// finite, and the reference computes it again; and so wherever AVX-512's is not.
TEST_P(Matrix, ShowsWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  for (float x : {inf, -inf, std::nanf(""), most, -most, 1e-40f}) {
    for (int where = 0; where < 3; ++where) {
      Random random(7);
      Case c = plain_case(random, Precision::highest, 130, 300, 64);
      Operand& operand = where == 0 ? *c.q : where == 1 ? *c.k : *c.v;
      operand.floats[static_cast<std::size_t>(20 * operand.rows.token + 3)] = x;
      for (std::size_t i = 0; i < 60; ++i) c.last[i] = 20;  // these do not see key 20
      c.last[20] = 300;
      const Result result = run(kernels_, c.p, random), avx512 = run(avx512_kernels(), c.p, random);
      for (std::size_t i = 0; i < c.first.size(); ++i) {
        const bool apart = x == 1e-40f || (where == 0 && i != 20) || (where == 1 && i < 60 && i != 20);
        if (!apart && !std::isfinite(result.lse[i])) continue;
        ASSERT_TRUE(std::isfinite(result.lse[i])) << x << " in " << where << ", row " << i;
        ASSERT_TRUE(std::isfinite(avx512.lse[i])) << x << " in " << where << ", row " << i;
        for (std::size_t d = i * 64; d < (i + 1) * 64; ++d) {
          const float want = avx512.output[d];
          ASSERT_NEAR(result.output[d], want, 4e-6f * (1 + std::abs(want))) << x << " in " << where << ", row " << i;
        }
      }
    }
  }
}

// Scores, or sums of values, past float32's range: the log-sum-exp says so.
TEST_P(Matrix, ShowsOverflow) {
  for (const Kind& kind : kKinds) {
    Random random(1);
    Case c = tiles_take_large(kind.element, kind.precision) ? plain_case(random, kind.precision, 130, 200, 64)
                                                            : draw_case(random, kind.element, kind.precision);
    Problem& p = c.p;
    std::fill(c.first.begin(), c.first.end(), 0);
    std::fill(c.last.begin(), c.last.end(), static_cast<std::int32_t>(p.tk));
    p.scale = 1, p.softcap = 0, p.keep = {}, p.bias = {}, p.dropout_keep = {}, p.dropout_factor = 1;
    const auto fill = [&](Operand& operand, float x) {
      std::fill(operand.floats.begin(), operand.floats.end(), x);
      std::fill(operand.halves.begin(), operand.halves.end(), bfloat16(x));
    };
    fill(*c.q, 1e30f), fill(*c.k, 1e30f);
    for (float lse : run(kernels_, p, random).lse) EXPECT_FALSE(std::isfinite(lse)) << kind.name;
    fill(*c.q, 1), fill(*c.k, 1), fill(*c.v, 3.3e38f);
    const Result result = run(kernels_, p, random);
    for (std::size_t i = 0; i < result.lse.size(); ++i) {
      const float out = result.output[i * static_cast<std::size_t>(p.dv)];
      EXPECT_TRUE(std::isnan(result.lse[i]) || std::abs(out / 3.3e38f - 1) < 0.01f) << kind.name;
    }
  }
}

// What is no work for bf16 products is AVX-512's, to the bit: float32 at highest precision, on tiles where it is small.
TEST_P(Matrix, SmallFloat32AtHighestPrecisionIsAvx512s) {
  for (unsigned seed = 300; seed < 320; ++seed) {
    Random random(seed);
    const Case c = draw_case(random, Element::f32, Precision::highest);
    const bool small = c.p.tq < 128 || c.p.tk < 128 || c.p.d < 32 || 4 * c.p.d < 3 * ((c.p.d + 31) / 32 * 32);
    if (!small && std::string(GetParam()) != "avx512bf16") continue;
    EXPECT_EQ(run(kernels_, c.p, random), run(avx512_kernels(), c.p, random)) << "seed " << seed;
  }
}

// Nor is a narrow window.
TEST_P(Matrix, Float32AtHighestPrecisionInANarrowWindowIsAvx512s) {
  Random random(1);
  Case c = plain_case(random, Precision::highest, 150, 700, 64);
  c.p.window = 255;
  EXPECT_EQ(run(kernels_, c.p, random), run(avx512_kernels(), c.p, random));
  c.p.window = 256;
  const bool same = run(kernels_, c.p, random) == run(avx512_kernels(), c.p, random);
  EXPECT_EQ(same, std::string(GetParam()) == "avx512bf16");
}

// Else the tests of what tiles make of it would compare AVX-512 with itself.
TEST_P(Matrix, LargeFloat32AtHighestPrecisionIsTheTiles) {
  Random random(1);
  const Case c = plain_case(random, Precision::highest, 150, 700, 64);
  const bool same = run(kernels_, c.p, random) == run(avx512_kernels(), c.p, random);
  EXPECT_EQ(same, std::string(GetParam()) == "avx512bf16");
}

}  // namespace
}  // namespace attn::kernels

#endif
