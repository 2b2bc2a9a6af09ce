// Both paths against the oracle, which shares no code with them, over random problems with every option: windows,
// lengths, packed sequences, offsets, ALiBi, buckets of distances, sinks, blocks, biases, softcap, grouped queries,
// dropout.
#include "attention/tiles.hpp"

namespace attn::test {
namespace {

enum class Path { fused, composed };

struct Case {
  Path path;
  DType dtype;
};

// Draws inputs that are small enough for the oracle, whose loops see every element.
Inputs small_inputs(std::mt19937& rng, DType dtype) {
  while (true) {
    Inputs in = tile_inputs(rng, dtype);
    if (chance(rng, 0.4)) add_offsets(rng, in);
    const Sizes& s = in.sizes;
    if (s.b * s.hq * s.tq * s.tk * (s.d + s.dv) < 4'000'000) return in;
  }
}

Tensor random_gradient(std::mt19937& rng, const Inputs& in) {
  return uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}, in.q.dtype());
}

oracle::Problem problem_of(const Inputs& in) { return oracle::problem_of(in.q, in.k, in.v, in.options); }

void expect_numbers(const Tensor& found, const oracle::Numbers& expected, const oracle::Problem& p, const char* what) {
  EXPECT_EQ(oracle::difference(found, expected, p.roundoff, what), "");
}

class Oracle : public testing::TestWithParam<Case> {
 protected:
  // Float64 has the composed path alone, and so has every dtype where all weights are asked for.
  static Inputs inputs(std::mt19937& rng) {
    Inputs in = small_inputs(rng, GetParam().dtype);
    in.options.return_weights = GetParam().path == Path::composed;
    in.options.weight_rows = {};
    if (size_of(in.q.dtype()) == 2 && chance(rng, 0.4)) in.options.output_dtype = DType::f32;
    return in;
  }
};

TEST_P(Oracle, AgreesOnTheForwardPass) {
  for_seeds(60, [](std::mt19937& rng) {
    const Inputs in = inputs(rng);
    SCOPED_TRACE(describe(in));
    const oracle::Problem p = problem_of(in);
    const oracle::Result expected = oracle::attention(p);
    const AttentionResult found = attention(in.q, in.k, in.v, in.options);
    EXPECT_EQ(found.output.dtype(), in.options.output_dtype.value_or(in.q.dtype()));
    expect_numbers(found.output, expected.output, p, "output");
    expect_numbers(found.lse, expected.lse, p, "lse");
    if (found.weights.defined()) expect_numbers(found.weights, expected.weights, p, "weights");
  });
}

TEST_P(Oracle, AgreesOnTheGradients) {
  for_seeds(40, [](std::mt19937& rng) {
    const Inputs in = inputs(rng);
    SCOPED_TRACE(describe(in));
    const Tensor d_output = random_gradient(rng, in);
    const AttentionGradient found = attention_backward(d_output, in.q, in.k, in.v, in.options);
    const oracle::Problem p = problem_of(in);
    EXPECT_EQ(found.q.dtype(), in.options.output_dtype.value_or(in.q.dtype()));
    expect_truth(p, d_output, found);
    EXPECT_EQ(found.relative_bias.defined(), in.options.relative_bias.table.defined());
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, Oracle,
                         testing::Values(Case{Path::fused, DType::f32}, Case{Path::fused, DType::bf16},
                                         Case{Path::fused, DType::f16}, Case{Path::composed, DType::f32},
                                         Case{Path::composed, DType::f64}),
                         [](const auto& instance) {
                           return std::string(instance.param.path == Path::fused ? "fused_" : "composed_") +
                                  std::string(name(instance.param.dtype));
                         });

// The oracle's own gradients, against differences of its forward pass.
TEST(OracleItself, GradientsEqualFiniteDifferences) {
  for_seeds(20, [](std::mt19937& rng) {
    Inputs in = random_inputs(rng, DType::f64, 1);
    if (chance(rng, 0.5)) in.options.sinks = uniform(rng, {in.sizes.hq});
    if (chance(rng, 0.5)) in.options.relative_bias = random_relative_bias(rng, in.sizes.hq, DType::f64);
    SCOPED_TRACE(describe(in));
    const std::vector<double> d_output = values(random_gradient(rng, in));
    const auto loss = [&] {
      const oracle::Numbers output = oracle::attention(problem_of(in)).output;
      double sum = 0;
      for (std::size_t i = 0; i < output.size(); ++i) sum += output[i].value * d_output[i];
      return sum;
    };
    const oracle::Gradient gradient = oracle::gradient(problem_of(in), d_output);
    const auto expect_slopes = [&](const oracle::Numbers& numbers, const Tensor& x, const char* what) {
      std::vector<double> all;
      for (const oracle::Number& n : numbers) all.push_back(n.value);
      expect_gradient(tensor(all, x.shape()), x, loss, 1e-5, 1e-8, what);
    };
    expect_slopes(gradient.q, in.q, "dq");
    expect_slopes(gradient.k, in.k, "dk");
    expect_slopes(gradient.v, in.v, "dv");
    if (in.options.sinks.defined()) expect_slopes(gradient.sinks, in.options.sinks, "dsinks");
    const Tensor& table = in.options.relative_bias.table;
    if (table.defined()) expect_slopes(gradient.relative, table, "drelative");
  });
}

}  // namespace
}  // namespace attn::test
