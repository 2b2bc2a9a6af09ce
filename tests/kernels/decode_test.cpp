// Decode of an int8 cache against sums in double of the same rows: rows of zeros, scales from 1e-30 to 1e30, widths
// that fill no vector, windows, softcap and sinks, for every unit. The page size must not change a bit.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

using test::pick;

struct Case {
  std::int64_t batch = 1, hkv = 1, group = 1, tq = 1, tk = 1, d = 1, dv = 1;
  float softcap = 0;
  bool with_sinks = false;
  std::vector<float> q, k_scale, v_scale, sinks;  // q (b, hq, tq, d), scales (b, hkv, tk)
  std::vector<std::int8_t> k, v;                  // (b, hkv, tk, d) and dv
  std::vector<std::int32_t> first, last;          // (tq)

  std::int64_t hq() const { return hkv * group; }
};

Case random_case(std::mt19937_64& random) {
  Case c;
  c.batch = pick(random, 1, 2), c.hkv = pick(random, 1, 2), c.group = pick(random, 1, 6), c.tq = pick(random, 1, 4);
  c.tk = pick(random, 1, pick(random, 0, 1) ? 1200 : 90), c.d = pick(random, 1, 200), c.dv = pick(random, 1, 200);
  c.softcap = pick(random, 0, 2) == 0 ? 3.f : 0.f, c.with_sinks = pick(random, 0, 1) == 0;
  const auto size = [](auto... sizes) { return static_cast<std::size_t>((sizes * ...)); };
  const auto normal = [&](std::vector<float>& x, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) x.push_back(factor * std::normal_distribution<float>()(random));
  };
  const float huge = std::pow(10.f, static_cast<float>(pick(random, -30, 30)));  // of queries; keys make up for it
  normal(c.q, size(c.batch, c.hq(), c.tq, c.d), huge);
  c.q[0] *= 1000;
  normal(c.sinks, size(c.hq()), 1);
  const float value = std::pow(10.f, static_cast<float>(pick(random, -30, 30)));
  const auto rows = [&](std::vector<std::int8_t>& x, std::vector<float>& scales, std::int64_t width, float factor) {
    for (std::int64_t r = 0; r < c.batch * c.hkv * c.tk; ++r) {
      const bool empty = pick(random, 0, 9) == 0;
      for (std::int64_t i = 0; i < width; ++i)
        x.push_back(static_cast<std::int8_t>(empty ? 0 : pick(random, -127, 127)));
      scales.push_back(empty ? 0 : factor * static_cast<float>(pick(random, 1, 100)) / 100);
    }
  };
  rows(c.k, c.k_scale, c.d, 0.02f / huge);
  rows(c.v, c.v_scale, c.dv, value);
  for (std::int64_t i = 0; i < c.tq; ++i) {
    const std::int64_t first = pick(random, 0, 1) ? 0 : pick(random, 0, c.tk);
    c.first.push_back(static_cast<std::int32_t>(first));
    c.last.push_back(static_cast<std::int32_t>(pick(random, 0, 4) == 0 ? first : pick(random, first, c.tk)));
  }
  return c;
}

struct Found {
  std::vector<float> output, lse;
  bool finite = true;  // as the kernels say
};

// The rows in pages of `tokens`, each (keys, values, scales of keys, scales of values).
Found decode(const Kernels& kernel, const Case& c, std::int64_t tokens, std::mt19937_64& random) {
  const std::int64_t per_item = (c.tk + tokens - 1) / tokens, row = c.d + c.dv + 8;
  const std::int64_t keys = 0, values = c.hkv * tokens * c.d, scales = (values + c.hkv * tokens * c.dv + 3) / 4 * 4;
  std::vector<std::vector<char>> pages;
  for (std::int64_t i = 0; i < c.batch * per_item; ++i) pages.emplace_back(c.hkv * tokens * row + 4);
  std::vector<const void*> addresses;
  for (const auto& page : pages) addresses.push_back(page.data());
  std::vector<const void* const*> tables;
  for (std::int64_t b = 0; b < c.batch; ++b) tables.push_back(addresses.data() + b * per_item);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.hkv; ++h) {
      for (std::int64_t t = 0; t < c.tk; ++t) {
        char* page = pages[static_cast<std::size_t>(b * per_item + t / tokens)].data();
        const std::int64_t from = (b * c.hkv + h) * c.tk + t, to = h * tokens + t % tokens;
        std::memcpy(page + keys + to * c.d, c.k.data() + from * c.d, static_cast<std::size_t>(c.d));
        std::memcpy(page + values + to * c.dv, c.v.data() + from * c.dv, static_cast<std::size_t>(c.dv));
        std::memcpy(page + scales + to * 4, c.k_scale.data() + from, 4);
        std::memcpy(page + scales + (c.hkv * tokens + to) * 4, c.v_scale.data() + from, 4);
      }
    }
  }
  const Pages described{tables.data(),
                        tokens,
                        Element::i8,
                        {keys, tokens * c.d, c.d, scales},
                        {values, tokens * c.dv, c.dv, scales + c.hkv * tokens * 4}};
  Found found{std::vector<float>(static_cast<std::size_t>(c.batch * c.hq() * c.tq * c.dv)),
              std::vector<float>(static_cast<std::size_t>(c.batch * c.hq() * c.tq))};
  Problem p{};
  p.batch = c.batch, p.hq = c.hq(), p.hkv = c.hkv, p.tq = c.tq, p.tk = c.tk, p.d = c.d, p.dv = c.dv;
  p.element = Element::f32, p.scale = 1 / std::sqrt(static_cast<float>(c.d)), p.softcap = c.softcap;
  p.q = {const_cast<float*>(c.q.data()), c.hq() * c.tq * c.d, c.tq * c.d, c.d};
  p.first = c.first.data(), p.last = c.last.data(), p.dropout.factor = 1;
  p.sinks = c.with_sinks ? c.sinks.data() : nullptr, p.pages = &described;
  const ForwardPlan plan = kernels::plan(p, kernel, 1);
  EXPECT_TRUE(plan.decodes());
  const Poisoned shared(plan.shared), scratch(plan.scratch);
  const ForwardResult result{
      {found.output.data(), c.hq() * c.tq * c.dv, c.tq * c.dv, c.dv}, found.lse.data(), c.tq, p.element, &found.finite};
  for (int phase = 0; phase < plan.phases; ++phase) {
    for (const std::int64_t task : shuffled(plan.tasks[phase], random)) {
      plan.kernel->run(p, plan, result, phase, task, shared.data.get(), scratch.data.get());
    }
  }
  return found;
}

// One row by the definition. Returns its log-sum-exp.
double exact(const Case& c, std::int64_t b, std::int64_t h, std::int64_t i, std::vector<double>& output) {
  const float* q = c.q.data() + ((b * c.hq() + h) * c.tq + i) * c.d;
  const std::int64_t first = c.first[static_cast<std::size_t>(i)];
  const std::int64_t last = c.last[static_cast<std::size_t>(i)];
  std::vector<double> s;
  double most = c.with_sinks ? c.sinks[static_cast<std::size_t>(h)] : -INFINITY;
  const double sink = most;
  const auto place = [&](std::int64_t t) { return (b * c.hkv + h / c.group) * c.tk + t; };
  for (std::int64_t t = first; t < last; ++t) {
    double dot = 0;
    for (std::int64_t e = 0; e < c.d; ++e) {
      dot += static_cast<double>(q[e]) * c.k[static_cast<std::size_t>(place(t) * c.d + e)];
    }
    dot *= static_cast<double>(c.k_scale[static_cast<std::size_t>(place(t))]) / std::sqrt(static_cast<double>(c.d));
    s.push_back(c.softcap > 0 ? c.softcap * std::tanh(dot / c.softcap) : dot);
    most = std::max(most, s.back());
  }
  output.assign(static_cast<std::size_t>(c.dv), 0);
  if (most == -INFINITY) return most;
  double sum = std::exp(sink - most);
  for (std::int64_t t = first; t < last; ++t) {
    const double weight = std::exp(s[static_cast<std::size_t>(t - first)] - most);
    sum += weight;
    const double scaled = weight * static_cast<double>(c.v_scale[static_cast<std::size_t>(place(t))]);
    for (std::int64_t e = 0; e < c.dv; ++e) {
      output[static_cast<std::size_t>(e)] += scaled * c.v[static_cast<std::size_t>(place(t) * c.dv + e)];
    }
  }
  for (double& x : output) x /= sum;
  return most + std::log(sum);
}

class Decode : public Units {};

// Scores reach some hundreds, and err by float32's rounding of them; so do weights, and by them the output.
void compare(const Case& c, const Found& found) {
  double largest = 0;
  for (const float x : found.lse)
    largest = std::isfinite(x) ? std::max(largest, std::fabs(static_cast<double>(x))) : largest;
  const double tolerance = 64 * 0x1p-24 * (1 + largest);
  for (std::int64_t r = 0; r < c.batch * c.hq() * c.tq; ++r) {
    std::vector<double> output;
    const double lse = exact(c, r / c.tq / c.hq(), r / c.tq % c.hq(), r % c.tq, output);
    const float got = found.lse[static_cast<std::size_t>(r)];
    if (std::isinf(lse)) {
      EXPECT_EQ(got, lse);
    } else {
      EXPECT_NEAR(got, lse, tolerance);
    }
    double value = 0;
    for (const float scale : c.v_scale) value = std::max(value, 127.0 * scale);
    for (std::int64_t e = 0; e < c.dv; ++e) {
      ASSERT_NEAR(found.output[static_cast<std::size_t>(r * c.dv + e)], output[static_cast<std::size_t>(e)],
                  tolerance * value)
          << "row " << r << ", column " << e;
    }
  }
}

TEST_P(Decode, Int8IsItsRows) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const Case c = random_case(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(c.group * c.tq) + " queries a key head, " +
                 std::to_string(c.tk) + " keys, d " + std::to_string(c.d) + ", dv " + std::to_string(c.dv));
    const Found whole = decode(kernels_, c, c.tk, random), paged = decode(kernels_, c, pick(random, 1, 70), random);
    compare(c, whole);
    EXPECT_EQ(std::memcmp(whole.output.data(), paged.output.data(), whole.output.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(whole.lse.data(), paged.lse.data(), whole.lse.size() * sizeof(float)), 0);
    if (HasFailure()) return;
  }
}

// The kernel tells of results that are not finite, for the caller to compute again.
TEST_P(Decode, Int8ShowsWhatIsNotFinite) {
  std::mt19937_64 random(7);
  for (const float bad : {INFINITY, NAN, std::bit_cast<float>(0xffffffffu), std::bit_cast<float>(0x7fff0000u)}) {
    for (int turn = 0; turn < 9; ++turn) {
      const int where = turn % 3;
      if (where == 1 && std::isinf(bad)) continue;  // a score of -inf is a key that is not seen
      Case c = random_case(random);
      for (std::int32_t& first : c.first) first = 0;
      for (std::int32_t& last : c.last) last = static_cast<std::int32_t>(c.tk);
      c.softcap = 0;
      (where == 0 ? c.q : where == 1 ? c.k_scale : c.v_scale)[0] = bad;
      c.k[0] = c.v[0] = 1;
      const Found found = decode(kernels_, c, c.tk, random);
      EXPECT_FALSE(found.finite) << where;
      EXPECT_FALSE(std::isfinite(found.lse[0]) && std::isfinite(found.output[0])) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Decode, testing::ValuesIn(unit_names()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attn::kernels
