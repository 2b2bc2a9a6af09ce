// Notebook 003 (the lecture): averaging the past, three ways; then a head whose weights depend on the data.
#include <cmath>

#include "attn/reference.hpp"
#include "check/results.hpp"

namespace attn::check {
namespace {

namespace ref = reference;

void sums_by_matmul(Results& out) {
  Generator rng(42);
  const Tensor a = Tensor::ones({3, 3}), b = rng.randint(0, 10, {3, 2}).to(DType::f32), tril = out.tril(3);
  out.add("A: ones", a);
  out.add("B: randint, seed 42", b);
  out.add("C: A @ B", ref::matmul(a, b));
  out.add("C: tril(A) @ B", ref::matmul(tril, b));
  out.add("B, again", b);
  out.add("tril(A) / row sums", ref::normalise_by_sum(tril));
  out.add("C: averages of B", ref::matmul(ref::normalise_by_sum(tril), b));
}

// torch.allclose(a, b, rtol = 1e-5, atol = 1e-7)
bool all_close(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double expected = y.data<double>()[i];
    if (!(std::fabs(x.data<double>()[i] - expected) <= 1e-7 + 1e-5 * std::fabs(expected))) return false;
  }
  return true;
}

void averages(Results& out) {
  Generator rng(1337);
  const Tensor x = rng.randn({4, 8, 2});
  const Tensor by_loop = ref::average_past(x, ref::AverageBy::loop);
  const Tensor triangular = out.masked() ? ref::average_past(x, ref::AverageBy::triangular)
                                         : ref::matmul(ref::normalise_by_sum(out.tril(8)), x);
  const Tensor by_softmax = ref::average_past(x, ref::AverageBy::softmax);
  out.add_shape("x.shape", x);
  out.add("x_avg[0], by loop", by_loop.select(0, 0));
  out.add("out[0], by triangular weights", triangular.select(0, 0));
  out.add("allclose(x_avg, out)", all_close(by_loop, triangular) && all_close(by_loop, by_softmax) ? 1 : 0);
  const Tensor minus_inf = ref::mask_fill(Tensor::zeros({8, 8}), out.keep(8));
  out.add("W: zeros with -inf", minus_inf);
  out.add("W: softmax", ref::softmax(minus_inf));
}

void head(Results& out) {
  Generator rng(1337);
  const Tensor x = rng.randn({4, 8, 32});
  SelfAttentionHead module({.d_in = 32, .d_out = 16, .causal = out.masked(), .layer_order = out.order(LayerOrder::kqv)},
                           rng);
  Trace steps;
  const Tensor z = module.forward(x, &steps);
  out.add_shape("head: key representation", steps["keys"]);
  out.add_shape("head: query representation", steps["queries"]);
  out.add_shape("head: W.shape", steps["weights"]);
  out.add("head: W[0]", steps["weights"].select(0, 0));
  out.add_shape("head: output.shape", z);
  out.add("head: output[0]", z.select(0, 0));
}

}  // namespace

void notebook_003(Results& out) {
  sums_by_matmul(out);
  averages(out);
  head(out);
}

}  // namespace attn::check
