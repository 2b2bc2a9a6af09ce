// linear_attention() against ONNX's cases and transformers' functions, and its gradients against autograd's in float64
// (recurrence.py).
#include <algorithm>

#include "attn/linear_attention.hpp"
#include "core/largest.hpp"
#include "golden/golden.hpp"

namespace {

using namespace attn;
using golden::given, test::largest;

// |found - expected| <= relative · |expected| + absolute
void expect_near(const Tensor& all, const Tensor& expected, double relative, double absolute, const std::string& what) {
  const Tensor found = test::kept(all, expected);
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  const Tensor a = found.to(DType::f64).contiguous(), b = expected.to(DType::f64).contiguous();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double want = b.data<double>()[i];
    ASSERT_NEAR(a.data<double>()[i], want, relative * std::abs(want) + absolute) << what << " at " << i;
  }
}

TEST(LinearAttentionOfOnnx, EveryCase) {
  const auto cases = golden::cases("recurrence", "recurrence", "onnx");
  EXPECT_EQ(cases.size(), 14u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.config.text("name"));
    LinearAttentionOptions options;
    options.rule = c.config.flag("delta") ? StateRule::delta : StateRule::plain;
    if (c.config.real("scale") != 0) options.scale = c.config.real("scale");
    options.decay = given(c, "decay"), options.beta = given(c, "beta");
    options.initial_state = given(c, "initial_state");
    const Tensor q = given(c, "q"), k = given(c, "k"), v = given(c, "v"), output = given(c, "output");
    const LinearAttentionResult found = linear_attention(q, k, v, options);
    EXPECT_EQ(found.output.dtype(), output.dtype());
    const double relative = q.dtype() == DType::f16 ? 0x1p-10 : 1e-6;  // ONNX allows 1e-3
    expect_near(found.output, output, relative, q.dtype() == DType::f16 ? 1e-3 : 1e-6, "output");
    expect_near(found.state, given(c, "state"), relative, q.dtype() == DType::f16 ? 1e-3 : 1e-6, "state");
  }
}

constexpr std::int64_t kKept = 3;  // tokens at each end

// recurrence.py's draw()
Tensor draw(const Shape& shape, std::uint64_t salt) {
  const Tensor t = Tensor::empty(shape, DType::f64);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    std::uint64_t x = static_cast<std::uint64_t>(i) + (salt << 32);
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 32)) * 0x94D049BB133111EBu;
    t.data<double>()[i] = static_cast<double>(x >> 40) / 8388608 - 1;
  }
  return t;
}

Tensor normalised(const Tensor& x) {
  const std::int64_t d = x.size(-1);
  for (std::int64_t at = 0; at < x.numel(); at += d) {
    double* row = x.data<double>() + at;
    double sum = 1e-6;
    for (std::int64_t i = 0; i < d; ++i) sum += row[i] * row[i];
    for (std::int64_t i = 0; i < d; ++i) row[i] /= std::sqrt(sum);
  }
  return x;
}

// factor · (x + 1) / 2
Tensor between(const Tensor& x, double factor) {
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = factor * (x.data<double>()[i] + 1) / 2;
  return x;
}

struct Inputs {
  Tensor q, k, v, d_output, d_state;
  LinearAttentionOptions options;
};

Inputs inputs_of(const golden::Config& c) {
  const std::int64_t h = c.integer("heads"), t = c.integer("tokens"), d_k = c.integer("d_k"), d_v = c.integer("d_v");
  const auto salt = static_cast<std::uint64_t>(16 * c.integer("salt"));
  const auto narrow = [](const Tensor& x) { return x.to(DType::f32); };
  Inputs in{narrow(normalised(draw({1, h, t, d_k}, salt))), narrow(normalised(draw({1, h, t, d_k}, salt + 1))),
            narrow(draw({1, h, t, d_v}, salt + 2)),         narrow(draw({1, h, t, d_v}, salt + 3)),
            narrow(draw({1, h, d_k, d_v}, salt + 7)),       {}};
  in.options.rule = c.flag("delta") ? StateRule::delta : StateRule::plain;
  const Shape by = c.flag("by_channel") ? Shape{1, h, t, d_k} : Shape{1, h, t};
  in.options.decay = narrow(between(draw(by, salt + 4), c.real("least")));
  if (c.flag("delta")) in.options.beta = narrow(between(draw({1, h, t}, salt + 5), 1));
  in.options.initial_state = narrow(draw({1, h, d_k, d_v}, salt + 6));
  return in;
}

TEST(LinearAttentionOfTransformers, Outputs) {
  for (const auto& c : golden::cases("recurrence", "recurrence", "transformers")) {
    SCOPED_TRACE(c.config.line());
    const Inputs in = inputs_of(c.config);
    const LinearAttentionResult found = linear_attention(in.q, in.k, in.v, in.options);
    const std::int64_t t = in.q.size(2);
    const Tensor end = found.output.slice(2, std::max<std::int64_t>(t - kKept, 0), t).select(0, 0);
    for (const std::string by : {"", "recurrent_"}) {
      if (!given(c, by + "output").defined()) continue;
      const double of_largest = 2e-6 * std::max(1.0, largest(given(c, by + "output")));
      expect_near(end, given(c, by + "output"), 0, of_largest, by + "output");
      expect_near(found.state.select(0, 0), given(c, by + "state"), 0,
                  2e-6 * std::max(1.0, largest(given(c, by + "state"))), by + "state");
    }
  }
}

TEST(LinearAttentionOfTransformers, Gradients) {
  for (const auto& c : golden::cases("recurrence", "recurrence", "transformers")) {
    SCOPED_TRACE(c.config.line());
    const Inputs in = inputs_of(c.config);
    const LinearAttentionGradient g = linear_attention_backward(in.d_output, in.d_state, in.q, in.k, in.v, in.options);
    const std::int64_t t = in.q.size(2);
    const std::vector<std::pair<std::string, Tensor>> all{
        {"d_q", g.q}, {"d_k", g.k}, {"d_v", g.v}, {"d_decay", g.decay}, {"d_beta", g.beta}};
    for (const auto& [name, found] : all) {
      if (!found.defined()) continue;
      const double absolute = 1e-5 * std::max(0.1, given(c, "largest_" + name).item());
      expect_near(found.select(0, 0).slice(1, std::max<std::int64_t>(t - kKept, 0), t), given(c, name), 0, absolute,
                  name);
      expect_near(found.select(0, 0).slice(1, 0, std::min<std::int64_t>(t, kKept)), given(c, "first_" + name), 0,
                  absolute, "first " + name);
    }
    const Tensor& state = given(c, "d_initial_state");
    expect_near(g.initial_state.select(0, 0), state, 0, 1e-5 * std::max(0.1, largest(state)), "d_initial_state");
  }
}

}  // namespace
