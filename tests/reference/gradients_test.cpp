// Every gradient of the reference against central differences, in float64, over random shapes.
#include "attn/reference.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

namespace ref = attn::reference;

TEST(Gradients, Project) {
  for_seeds(8, [](std::mt19937& rng) {
    const std::int64_t d_in = pick(rng, 1, 4), d_out = pick(rng, 1, 4);
    const Shape leading = chance(rng, 0.5) ? Shape{2, 3} : Shape{3};
    Shape in = leading, out = leading;
    in.push_back(d_in), out.push_back(d_out);
    const Tensor x = uniform(rng, in), w = uniform(rng, {d_out, d_in}), b = uniform(rng, {d_out});
    const Tensor g = uniform(rng, out);
    const auto loss = [&] { return dot(ref::project(x, w, b), g); };
    const auto grad = ref::project_backward(scattered(rng, g), x, w, true);
    expect_gradient(grad.x, x, loss);
    expect_gradient(grad.weight, w, loss);
    expect_gradient(grad.bias, b, loss);
    EXPECT_FALSE(ref::project_backward(g, x, w, false).bias.defined());
  });
}

TEST(Gradients, Scores) {
  for_seeds(8, [](std::mt19937& rng) {
    const std::int64_t tq = pick(rng, 1, 4), tk = pick(rng, 1, 4), d = pick(rng, 1, 4);
    const Tensor q = uniform(rng, {2, tq, d}), k = uniform(rng, {2, tk, d}), g = uniform(rng, {2, tq, tk});
    const auto loss = [&] { return dot(ref::scores(q, k), g); };
    const auto grad = ref::scores_backward(g, q, k);
    expect_gradient(grad.q, q, loss);
    expect_gradient(grad.k, k, loss);
  });
}

TEST(Gradients, Softcap) {
  for_seeds(8, [](std::mt19937& rng) {
    const Tensor s = uniform(rng, {3, 4}, DType::f64, -6, 6), g = uniform(rng, {3, 4});
    expect_gradient(ref::softcap_backward(g, s, 2.5), s, [&] { return dot(ref::softcap(s, 2.5), g); });
  });
}

TEST(Gradients, Scale) {
  std::mt19937 rng(1);
  const Tensor s = uniform(rng, {3, 4}), g = uniform(rng, {3, 4});
  expect_gradient(ref::scale(g, -0.7), s, [&] { return dot(ref::scale(s, -0.7), g); });
}

TEST(Gradients, Softmax) {
  for_seeds(8, [](std::mt19937& rng) {
    const std::int64_t n = pick(rng, 1, 6);
    const Tensor s = uniform(rng, {3, n}, DType::f64, -2, 2), g = uniform(rng, {3, n}),
                 keep = booleans(rng, {3, n}, 0.7);
    const auto weights = [&] { return ref::softmax(ref::mask_fill(s, keep)); };
    expect_gradient(ref::softmax_backward(g, weights()), s, [&] { return dot(weights(), g); });
  });
}

TEST(Gradients, Dropout) {
  std::mt19937 rng(1);
  const Tensor w = uniform(rng, {3, 4}), g = uniform(rng, {3, 4}), keep = booleans(rng, {3, 4}, 0.6);
  expect_gradient(ref::dropout(g, keep, 0.4), w, [&] { return dot(ref::dropout(w, keep, 0.4), g); });
}

TEST(Gradients, WeightedSum) {
  for_seeds(8, [](std::mt19937& rng) {
    const std::int64_t tq = pick(rng, 1, 4), tk = pick(rng, 1, 4), dv = pick(rng, 1, 4);
    const Tensor w = uniform(rng, {2, tq, tk}), v = uniform(rng, {2, tk, dv}), g = uniform(rng, {2, tq, dv});
    const auto loss = [&] { return dot(ref::weighted_sum(w, v), g); };
    const auto grad = ref::weighted_sum_backward(g, w, v);
    expect_gradient(grad.weights, w, loss);
    expect_gradient(grad.v, v, loss);
  });
}

TEST(Gradients, Float32IsTheFloat64OneRounded) {
  std::mt19937 rng(1);
  const auto both = [&](const Shape& shape) {
    const Tensor narrow = uniform(rng, shape, DType::f32);
    return std::pair{narrow, narrow.to(DType::f64)};
  };
  const auto [dw, dw64] = both({3, 5});
  const auto [s, s64] = both({3, 5});
  EXPECT_TRUE(identical(ref::softcap_backward(dw, s, 2), ref::softcap_backward(dw64, s64, 2).to(DType::f32)));
  expect_close(ref::softmax_backward(dw, ref::softmax(s)), ref::softmax_backward(dw64, ref::softmax(s64)), 1e-7,
               "softmax");
  const auto [x, x64] = both({3, 4});
  const auto [w, w64] = both({5, 4});
  const auto found = ref::project_backward(dw, x, w, true), wide = ref::project_backward(dw64, x64, w64, true);
  expect_close(found.x, wide.x, 1e-7, "project: x");
  expect_close(found.weight, wide.weight, 1e-7, "project: weight");
  expect_close(found.bias, wide.bias, 1e-7, "project: bias");
}

}  // namespace
}  // namespace attn::test
