// attention() and attention_backward() against the same composed of matmul and softmax in PyTorch.
#include <algorithm>
#include <cmath>
#include <cstdlib>
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

// Draws the inputs in the order in which generate.py draws.
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

// Masks, bias and softcap of a case as one function of the scores; its bias has no gradient then.
AttentionOptions as_score_function(const Inputs& in) {
  AttentionOptions options = in.options;
  const std::int64_t shift = options.mask.align == Align::bottom_right ? in.k.size(2) - in.q.size(2) : 0;
  const Shape all{in.q.size(0), in.q.size(1), in.q.size(2), in.k.size(2)};
  const Tensor keep = options.mask.keep.defined() ? options.mask.keep.expand(all) : Tensor{};
  const Tensor bias = options.mask.bias.defined() ? options.mask.bias.expand(all) : Tensor{};
  const double cap = options.softcap;
  const auto sees = [=, causal = options.mask.is_causal](auto b, auto h, auto i, auto j) {
    return (!causal || j <= i + shift) && (!keep.defined() || keep.at({b, h, i, j}) != 0);
  };
  options.mask = {}, options.softcap = 0;
  options.score_function = ScoreFunction::elementwise(
      [=](auto s, auto... at) {
        const auto x = static_cast<double>(s);
        if (!sees(at...)) return -std::numeric_limits<double>::infinity();
        return (cap > 0 ? cap * std::tanh(x / cap) : x) + (bias.defined() ? bias.at({at...}) : 0);
      },
      [=](auto s, auto...) { return cap > 0 ? 1 - std::pow(std::tanh(static_cast<double>(s) / cap), 2) : 1; });
  return options;
}

void as_score_functions_equal(const std::string& dtype, bool weights) {
  for (const auto& c : golden::cases("operator", "operator", dtype)) {
    const Inputs in = draw_inputs(c.config);
    AttentionOptions options = as_score_function(in);
    options.return_weights = weights;  // without them float32 takes the kernels
    const AttentionResult found = attention(in.q, in.k, in.v, options);
    golden::expect_close(c.expected.at("output"), found.output, forward_tolerance(dtype), c, "output");
    golden::expect_close(c.expected.at("lse"), found.lse, forward_tolerance(dtype), c, "lse");
    const AttentionGradient grad = attention_backward(in.dz, in.q, in.k, in.v, options);
    auto tolerance = gradient_tolerance(dtype);
    tolerance.absolute *= 2;  // scores are rounded once more, on the way to the function
    golden::expect_close(c.expected.at("q.grad"), grad.q, tolerance, c, "q.grad");
    golden::expect_close(c.expected.at("k.grad"), grad.k, tolerance, c, "k.grad");
    golden::expect_close(c.expected.at("v.grad"), grad.v, tolerance, c, "v.grad");
  }
}

// T5's relative positions (Raffel et al. 2020, section 2.1): the bucket of key minus query position.
std::int64_t t5_bucket(std::int64_t distance, bool both_sides, std::int64_t buckets, std::int64_t far) {
  if (both_sides) buckets /= 2;
  const std::int64_t base = both_sides && distance > 0 ? buckets : 0, exact = buckets / 2;
  const std::int64_t length = both_sides ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  if (length < exact) return base + length;
  const double share = std::log(static_cast<double>(length) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(far) / static_cast<double>(exact));
  const auto shared = static_cast<std::int64_t>(share * static_cast<double>(buckets - exact));
  return base + std::min(buckets - 1, exact + shared);
}

// Relative positions as a score function, under a block-sparse mask.
void scores_equal(const std::string& dtype) {
  for (const auto& [number, name, c, expected] : golden::cases("scores", "scores", dtype)) {
    const golden::Case whole{number, name, c, expected};
    Generator stream(static_cast<std::uint64_t>(c.integer("seed")));
    const auto drawn = [&](const Shape& shape) {
      return stream.uniform(shape, -2, 2).to(dtype == "float64" ? DType::f64 : DType::f32);
    };
    const std::int64_t b = c.integer("b"), h = c.integer("h"), tq = c.integer("tq"), tk = c.integer("tk"),
                       block_query = c.integer("block_query"), block_key = c.integer("block_key");
    const Tensor q = drawn({b, h, tq, c.integer("d")}), k = drawn({b, h, tk, c.integer("d")}),
                 v = drawn({b, h, tk, c.integer("dv")}), table = drawn({h, c.integer("buckets")});
    const Tensor blocks =
        draw_bool({(tq + block_query - 1) / block_query, (tk + block_key - 1) / block_key}, 0.5, stream);
    const Tensor dz = drawn({b, h, tq, c.integer("dv")});
    const auto bias = [=, both = c.flag("bidirectional"), buckets = c.integer("buckets"), far = c.integer("far")](
                          auto s, auto, auto head, auto i, auto j) {
      return static_cast<double>(s) + table.at({head, t5_bucket(j - i, both, buckets, far)});
    };
    const AttentionOptions options{.mask = Mask::blocks(blocks, block_query, block_key),
                                   .scale = c.real("scale"),
                                   .score_function = ScoreFunction::elementwise(bias, [](auto, auto...) { return 1; })};
    const AttentionResult found = attention(q, k, v, options);
    golden::expect_close(expected.at("output"), found.output, forward_tolerance(dtype), whole, "output");
    golden::expect_close(expected.at("lse"), found.lse, forward_tolerance(dtype), whole, "lse");
    const AttentionGradient grad = attention_backward(dz, q, k, v, options, found);
    const auto tolerance = gradient_tolerance(dtype);
    golden::expect_close(expected.at("q.grad"), grad.q, tolerance, whole, "q.grad");
    golden::expect_close(expected.at("k.grad"), grad.k, tolerance, whole, "k.grad");
    golden::expect_close(expected.at("v.grad"), grad.v, tolerance, whole, "v.grad");
  }
}

TEST(ScoreFunction, InPlaceOfMasksBiasAndSoftcapEqualsPyTorch) {
  as_score_functions_equal("float32", false);
  as_score_functions_equal("float32", true);
  as_score_functions_equal("float64", false);
}

TEST(ScoreFunction, T5PositionsUnderBlocksEqualPyTorch) {
  scores_equal("float32");
  scores_equal("float64");
}

TEST(Operator, Float32OutputLseAndWeightsEqualPyTorch) { forward_equals("float32"); }

TEST(Operator, Float64OutputLseAndWeightsEqualPyTorch) { forward_equals("float64"); }

TEST(Operator, Float32GradientsEqualPyTorch) { gradients_equal("float32"); }

TEST(Operator, Float64GradientsEqualPyTorch) { gradients_equal("float64"); }

}  // namespace
