// The page's checks: nothing that rounding does fails one, and every fault that is planted does, in every dtype and
// beside large scores.
#include "attn/attention.hpp"
#include "attn/language_model.hpp"
#include "attn/module_kinds.hpp"
#include "attn/report.hpp"
#include "core/testing.hpp"
#include "report/html/blocks.hpp"
#include "report/html/health.hpp"

namespace attn::test {
namespace {

using report_page::Check;

const std::vector<DType> kDTypes{DType::f32, DType::f64, DType::bf16, DType::f16};

std::vector<Check> checks_of(const Trace& trace) { return report_page::health(report_page::arrange(trace, 0)); }

std::string failed(const Trace& trace) {
  std::string names;
  for (const Check& check : checks_of(trace)) {
    if (!check.holds) names += (names.empty() ? "" : "; ") + check.name;
  }
  return names;
}

std::string all_told(const Trace& trace) {
  std::string told;
  for (const Check& check : checks_of(trace)) told += check.name + ": " + check.told + "\n";
  return told;
}

// Queries as they are drawn, and keys with biases up to `bias`, as Qwen2.5's first layer has them.
Trace biased_keys(std::mt19937& rng, DType dtype, double bias, const AttentionOptions& options) {
  const std::int64_t tokens = pick(rng, 2, 40), size = pick(rng, 4, 64);
  Tensor k = uniform(rng, {1, 2, tokens, size}, DType::f64, -4, 4);
  const std::vector<double> biases = values(uniform(rng, {size}, DType::f64, -bias, bias));
  for (std::int64_t i = 0; i < k.numel(); ++i) k.data<double>()[i] += biases[static_cast<std::size_t>(i % size)];
  const Tensor q = uniform(rng, {1, 4, tokens, size}, dtype, -8, 8), v = uniform(rng, {1, 2, tokens, 5}, dtype);
  Trace trace;
  attention(q, k.to(dtype), v, options, &trace);
  return trace;
}

// The trace with one number of a step changed by f.
Trace with(const Trace& trace, const std::string& step, std::int64_t at, const std::function<double(double)>& f) {
  Trace changed;
  for (const auto& [name, value] : trace.steps()) {
    Tensor copy = value.clone();
    if (name == step) {
      const Tensor line = copy.to(DType::f64).view({-1});
      line.data<double>()[at] = f(line.data<double>()[at]);
      copy = line.view(value.shape()).to(value.dtype());
    }
    changed.record(name, copy);
  }
  return changed;
}

std::int64_t largest(const Tensor& step) {
  const std::vector<double> all = values(step);
  return std::max_element(all.begin(), all.end()) - all.begin();
}

// A value's NaN shows beside a weight that rounds to 0 as beside a larger one, and is no fault of the arithmetic.
TEST(Checks, NaNBesideAWeightOfZeroIsNoFault) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name(dtype));
    const auto trace_of = [&](double key) {
      const Tensor q = Tensor::ones({1, 1, 2, 1}, dtype);
      Tensor k = Tensor::zeros({1, 1, 2, 1}, dtype), v = Tensor::ones({1, 1, 2, 3}, dtype);
      k.set({0, 0, 0, 0}, key), v.set({0, 0, 0, 1}, std::numeric_limits<double>::quiet_NaN());
      Trace trace;
      attention(q, k, v, {.mask = Mask::causal()}, &trace);
      return trace;
    };
    const Trace far = trace_of(-1e4), near = trace_of(-1);
    EXPECT_EQ(values(far["weights"]).at(2), 0);
    EXPECT_EQ(failed(far), failed(near)) << all_told(far);
  }
}

TEST(Checks, RoundingBesideLargeScoresIsNoFault) {
  const Tensor sinks = Tensor::of({0.5f, -1, 300, 2});
  for (const DType dtype : kDTypes) {
    for_seeds(12, [&](std::mt19937& rng) {
      for (const double bias : {0.0, 1.0, 354.0, 5000.0}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", biases up to " + std::to_string(bias));
        for (const AttentionOptions& options : {AttentionOptions{},
                                                {.mask = Mask::causal()},
                                                {.mask = Mask::causal(), .softcap = 50},
                                                {.sinks = sinks}}) {
          const Trace trace = biased_keys(rng, dtype, bias, options);
          EXPECT_EQ(failed(trace), "") << all_told(trace);
          EXPECT_EQ(checks_of(trace).size(), options.mask.empty() ? 5 : 6);
        }
      }
    });
  }
}

// A score that leaves float32's range is recorded as its largest number.
TEST(Checks, ScoresPastFloat32sRangeAreNoFault) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for_seeds(6, [&](std::mt19937& rng) {
      const auto large = [&] { return uniform(rng, {1, 2, 9, 16}, dtype, -3e20, 3e20); };
      const Tensor q = large(), k = large(), v = uniform(rng, {1, 2, 9, 5}, dtype);
      Trace trace;
      attention(q, k, v, {}, &trace);
      EXPECT_THAT(values(trace["scores"]), testing::Contains(std::numeric_limits<float>::max()));
      EXPECT_EQ(failed(trace), "") << name(dtype) << "\n" << all_told(trace);
    });
  }
}

TEST(Checks, FaultsAreFoundBesideLargeScores) {
  for (const DType dtype : kDTypes) {
    for_seeds(6, [&](std::mt19937& rng) {
      for (const double bias : {0.0, 354.0}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", biases up to " + std::to_string(bias));
        const Trace trace = biased_keys(rng, dtype, bias, {.mask = Mask::causal()});
        const auto fault = [&](const std::string& step, const auto& f) {
          return failed(with(trace, step, largest(trace[step]), f));
        };
        // A thousandth of a number that is no mask's, and of weights one that the sum of a row does not tell.
        const auto wrong = [](double x) { return x * 1.0001; };
        EXPECT_EQ(fault("scores", wrong).substr(0, 30), "float64 gives the same scores");
        EXPECT_EQ(fault("scaled", wrong).substr(0, 30), "float64 gives the same scores");
        EXPECT_THAT(fault("masked", wrong), testing::HasSubstr("float64 gives the same scores"));
        EXPECT_THAT(fault("weights", wrong), testing::HasSubstr("float64 gives the same weights"));
        EXPECT_EQ(fault("context", wrong), "float64 gives the same contexts");
        // The first query sees the first key alone.
        EXPECT_THAT(failed(with(trace, "weights", 1, [](double) { return 1e-30; })),
                    testing::HasSubstr("masked keys have no weight"));
        EXPECT_THAT(failed(with(trace, "weights", 0, [](double) { return NAN; })),
                    testing::HasSubstr("every value is a number"));
      }
    });
  }
}

// Weights alone, as attn.report(weights.astype(bfloat16)) has them.
TEST(Checks, RowsAreMeasuredByTheirDType) {
  for (const DType dtype : kDTypes) {
    for_seeds(12, [&](std::mt19937& rng) {
      SCOPED_TRACE(name(dtype));
      const std::int64_t keys = pick(rng, 1, 300);
      const Tensor rows = uniform(rng, {1, 4, keys}, DType::f64, 0, 1);
      for (std::int64_t i = 0; i < 4; ++i) {
        double* row = rows.data<double>() + i * keys;
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) sum += row[j] = std::exp(8 * row[j]);
        for (std::int64_t j = 0; j < keys; ++j) row[j] /= sum;
      }
      Trace rounded;
      rounded.record("weights", rows.to(dtype));
      EXPECT_EQ(failed(rounded), "") << all_told(rounded);
      const Check check = checks_of(rounded).front();
      EXPECT_THAT(check.told, testing::HasSubstr("where rounding to " + std::string(name(dtype)) + " allows"));
      // A row that is off by four times what the page says it may be.
      Trace off;
      const Tensor more = rows.clone();
      for (std::int64_t j = 0; j < keys; ++j) more.data<double>()[j] *= 1 + 4 * check.bound;
      off.record("weights", more.to(dtype));
      EXPECT_EQ(failed(off), "each row of weights sums to 1");
      EXPECT_LE(check.bound, dtype == DType::bf16  ? 0.0079
                             : dtype == DType::f16 ? 0.0011
                             : dtype == DType::f32 ? 2e-5
                                                   : 1e-13);
    });
  }
}

TEST(Checks, ASinkTakesItsPart) {
  std::mt19937 rng(3);
  const Tensor x = uniform(rng, {1, 4, 6, 8}, DType::f32);
  Trace trace;
  attention(x, x, x, {.mask = Mask::causal(), .sinks = Tensor::of({0.5f, -1, 3, 2})}, &trace);
  EXPECT_EQ(failed(trace), "") << all_told(trace);
  EXPECT_LT(trace["weights"].at({0, 0, 0, 0}), 0.9);
  EXPECT_EQ(failed(with(trace, "sinks", 2, [](double sink) { return sink + 0.01; })), "float64 gives the same weights");
  Trace alone;
  alone.record("weights", trace["weights"]);
  EXPECT_EQ(failed(alone), "each row of weights sums to 1");
  alone.record("sinks", trace["sinks"]);
  EXPECT_EQ(failed(alone), "");
  EXPECT_EQ(failed(with(alone, "weights", 0, [](double) { return 1.01; })),
            "each row of weights sums to 1 at most: a sink has the rest");
}

// Every module, with biases and inputs as large as released models' are.
TEST(Checks, ModulesHaveNoFault) {
  for (const ModuleKind& kind : module_kinds()) {
    for (const double large : {1.0, 354.0}) {
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(large));
      ModuleConfig config{.d_in = 6, .d_out = 8, .dropout = kind.uses.linear ? 0.3 : 0, .qkv_bias = kind.uses.linear};
      if (kind.uses.heads) config.num_heads = 2;
      Generator rng(11);
      const auto module = kind.make(config, rng);
      for (Parameter* p : module->parameters()) {
        if (p->name.ends_with("W_key.bias")) p->value = Generator(3).uniform(p->value.shape(), -large, large);
      }
      module->train();
      Trace trace;
      const Tensor x = Generator(5).uniform({9, 6}, -large / 20 - 1, large / 20 + 1);
      if (auto* cross = dynamic_cast<CrossAttention*>(module.get())) {
        cross->forward(x, Generator(6).uniform({4, 6}, -1, 1), &trace);
      } else {
        module->forward(x, &trace);
      }
      EXPECT_EQ(failed(trace), "") << all_told(trace);
    }
  }
}

TEST(Checks, VectorsOfOneSizeAreMultiplied) {
  Trace trace;
  trace.record("weights", Tensor::full({1, 2, 2}, 0.5));
  trace.record("scores", Tensor::zeros({1, 2, 2}));
  trace.record("queries", Tensor::zeros({1, 2, 3}));
  trace.record("keys", Tensor::zeros({1, 2, 4}));
  EXPECT_THROW(checks_of(trace), Error);
}

}  // namespace
}  // namespace attn::test
