// attention() and attention_backward() against the same composed of matmul and softmax in PyTorch.
#include <limits>

#include "attn/attention.hpp"
#include "golden/golden.hpp"

namespace {

using namespace attn;

struct Inputs {
  Tensor q, k, v, dz;
  AttentionOptions options;
};

Shape shape_of(const std::string& text) {  // "2x1x4"
  Shape shape;
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, 'x');) shape.push_back(std::stoll(size));
  return shape;
}

// True with probability 1 - p, as generate.py draws it.
Tensor draw_bool(const Shape& shape, double p, Generator& stream) {
  const Tensor u = stream.rand(shape), result = Tensor::empty(shape, DType::boolean);
  for (std::int64_t i = 0; i < u.numel(); ++i) result.data<bool>()[i] = u.data<float>()[i] >= static_cast<float>(p);
  return result;
}

Tensor draw_bias(const Shape& shape, double p_inf, Generator& stream) {
  const Tensor bias = stream.uniform(shape, -2, 2), finite = draw_bool(shape, p_inf, stream);
  for (std::int64_t i = 0; i < bias.numel(); ++i) {
    if (!finite.data<bool>()[i]) bias.data<float>()[i] = -std::numeric_limits<float>::infinity();
  }
  return bias;
}

// In the order in which generate.py draws.
Inputs draw_inputs(const golden::Config& c) {
  Generator stream(static_cast<std::uint64_t>(c.integer("seed")));
  const DType dtype = c.text("dtype") == "float64" ? DType::f64 : DType::f32;
  const auto drawn = [&](const Shape& shape) { return stream.uniform(shape, -2, 2).to(dtype); };
  const std::int64_t b = c.integer("b"), hq = c.integer("hq"), hkv = c.integer("hkv"), tq = c.integer("tq"),
                     tk = c.integer("tk"), d = c.integer("d"), dv = c.integer("dv");
  Inputs in;
  in.q = drawn({b, hq, tq, d});
  in.k = drawn({b, hkv, tk, d});
  in.v = drawn({b, hkv, tk, dv});
  if (c.text("keep") != "none") in.options.mask.keep = draw_bool(shape_of(c.text("keep")), 0.4, stream);
  if (c.text("bias") != "none") {
    in.options.mask.bias = draw_bias(shape_of(c.text("bias")), c.real("bias_inf"), stream).to(dtype);
  }
  in.options.mask.is_causal = c.text("causal") != "none";
  if (c.text("causal") == "bottom_right") in.options.mask.align = Align::bottom_right;
  if (c.text("scale") != "default") in.options.scale = c.real("scale");
  in.options.softcap = c.real("softcap");
  in.options.dropout = c.real("dropout");
  if (in.options.dropout > 0) in.options.dropout_keep = draw_bool({b, hq, tq, tk}, in.options.dropout, stream);
  in.options.return_weights = true;
  in.dz = drawn({b, hq, tq, dv});
  return in;
}

// PyTorch computes in the tensors' own precision, so the difference is mostly its rounding.
golden::Tolerance forward_tolerance(const std::string& dtype) {
  return {.absolute = dtype == "float64" ? 1e-13 : 1e-6, .times_largest = true};
}

golden::Tolerance gradient_tolerance(const std::string& dtype) {
  return {.absolute = dtype == "float64" ? 1e-12 : 1e-5, .times_largest = true};
}

void forward_equals(const std::string& dtype) {
  for (const auto& c : golden::cases("operator", "operator", dtype)) {
    const Inputs in = draw_inputs(c.config);
    const AttentionResult found = attention(in.q, in.k, in.v, in.options);
    golden::expect_close(c.expected.at("output"), found.output, forward_tolerance(dtype), c, "output");
    golden::expect_close(c.expected.at("lse"), found.lse, forward_tolerance(dtype), c, "lse");
    golden::expect_close(c.expected.at("weights"), found.weights, forward_tolerance(dtype), c, "weights");
  }
}

void gradients_equal(const std::string& dtype) {
  for (const auto& c : golden::cases("operator", "operator", dtype)) {
    const Inputs in = draw_inputs(c.config);
    const AttentionGradient found = attention_backward(in.dz, in.q, in.k, in.v, in.options);
    const auto tolerance = gradient_tolerance(dtype);
    golden::expect_close(c.expected.at("q.grad"), found.q, tolerance, c, "q.grad");
    golden::expect_close(c.expected.at("k.grad"), found.k, tolerance, c, "k.grad");
    golden::expect_close(c.expected.at("v.grad"), found.v, tolerance, c, "v.grad");
    ASSERT_EQ(found.bias.defined(), c.expected.count("bias.grad") == 1) << c.config.line();
    if (found.bias.defined()) golden::expect_close(c.expected.at("bias.grad"), found.bias, tolerance, c, "bias.grad");
  }
}

TEST(Operator, Float32OutputLseAndWeightsEqualPyTorch) { forward_equals("float32"); }

TEST(Operator, Float64OutputLseAndWeightsEqualPyTorch) { forward_equals("float64"); }

TEST(Operator, Float32GradientsEqualPyTorch) { gradients_equal("float32"); }

TEST(Operator, Float64GradientsEqualPyTorch) { gradients_equal("float64"); }

}  // namespace
