// Biases by buckets of distances as transformers' T5 computes them (relative.py): by the fused kernels in float32,
// composed in float64. Expected values were computed in float64.
#include "attn/attention.hpp"
#include "golden/golden.hpp"

namespace {

using namespace attn;

TEST(RelativeBias, BucketsAreThoseOfT5) {
  for (const auto& c : golden::cases("relative", "relative", "buckets")) {
    const Tensor& expected = c.expected.at("buckets");
    const std::int64_t farthest = expected.numel() / 2;
    for (std::int64_t distance = -farthest; distance <= farthest; ++distance) {
      ASSERT_EQ(relative_bucket(distance, c.config.integer("buckets"), c.config.flag("bidirectional"),
                                c.config.integer("max_distance")),
                static_cast<std::int64_t>(expected.at({farthest + distance})))
          << c.config.line() << " at " << distance;
    }
  }
}

// (b, t, h · d) as (b, h, t, d), and back.
Tensor heads(const Tensor& x, std::int64_t h) {
  return x.view({x.size(0), x.size(1), h, x.size(2) / h}).transpose(1, 2);
}

Tensor merged(const Tensor& x) {
  return x.transpose(1, 2).contiguous().view({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

void equals(const golden::Case& wanted, DType dtype) {
  const golden::Config& c = wanted.config;
  Generator stream(static_cast<std::uint64_t>(c.integer("seed")));
  const std::int64_t b = c.integer("b"), h = c.integer("h"), t = c.integer("t"), width = h * c.integer("d");
  AttentionOptions options;
  options.scale = 1;
  options.relative_bias = {stream.uniform({c.integer("buckets"), h}, -2, 2).to(dtype), c.flag("bidirectional"),
                           c.integer("max_distance")};
  options.mask.is_causal = !c.flag("bidirectional");
  const Tensor x = heads(stream.uniform({b, t, width}, -2, 2).to(dtype), h);
  const Tensor d_output = heads(stream.uniform({b, t, width}, -2, 2).to(dtype), h);
  const auto expect = [&](const char* what, const Tensor& found, double tolerance) {
    golden::expect_close(wanted.expected.at(what), found.to(DType::f32), {.absolute = tolerance, .times_largest = true},
                         wanted, what);
  };
  const AttentionResult found = attention(x, x, x, options);
  expect("output", merged(found.output), 1e-6);
  const AttentionGradient gradient = attention_backward(d_output, x, x, x, options, found);
  const Tensor d_q = merged(gradient.q), d_k = merged(gradient.k), d_v = merged(gradient.v);
  const Tensor d_x = Tensor::zeros(d_q.shape(), DType::f64);
  for (const Tensor& part : {d_q, d_k, d_v}) {
    const Tensor wide = part.to(DType::f64);
    for (std::int64_t i = 0; i < d_x.numel(); ++i) d_x.data<double>()[i] += wide.data<double>()[i];
  }
  expect("x.grad", d_x, 5e-6);
  expect("table.grad", gradient.relative_bias, dtype == DType::f32 ? 2e-5 : 1e-6);  // sums of thousands that cancel
}

TEST(RelativeBias, EqualsT5) {
  for (const auto& c : golden::cases("relative", "relative", "attention")) {
    for (const DType dtype : {DType::f32, DType::f64}) equals(c, dtype);
  }
}

}  // namespace
