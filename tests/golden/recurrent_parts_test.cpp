// The parts around linear attention against ONNX's cases and transformers' functions (recurrent_parts.py).
#include "attn/recurrent_parts.hpp"

#include "golden/golden.hpp"

namespace {

using namespace attn;
using golden::given;

TEST(CausalConvolutionOfOnnx, EveryCase) {
  const auto cases = golden::cases("recurrent_parts", "convolution", "onnx");
  EXPECT_EQ(cases.size(), 13u);
  for (const auto& c : cases) {
    ConvolutionOptions options;
    options.silu = c.config.flag("silu");
    options.bias = given(c, "bias"), options.initial_state = given(c, "initial_state");
    const ConvolutionResult found = causal_convolution(given(c, "x"), given(c, "weight"), options);
    const golden::Tolerance tolerance =
        given(c, "x").dtype() == DType::f16 ? golden::Tolerance{0x1p-10, 1e-4} : golden::Tolerance{1e-6, 1e-7};
    golden::expect_close(given(c, "output"), found.output, tolerance, c, "output");  // ONNX allows 1e-3
    golden::expect_close(given(c, "state"), found.state, {}, c, "state");
  }
}

TEST(CausalConvolutionOfTransformers, PromptStepAndGradients) {
  for (const auto& c : golden::cases("recurrent_parts", "convolution", "transformers")) {
    const Tensor x = given(c, "x"), weight = given(c, "weight");
    ConvolutionOptions options;
    options.silu = true;
    const ConvolutionResult found = causal_convolution(x, weight, options);
    golden::expect_close(given(c, "output"), found.output, {0, 1e-6, true}, c, "output");
    golden::expect_close(given(c, "state"), found.state, {}, c, "state");
    const ConvolutionGradient g = causal_convolution_backward(given(c, "d_output"), {}, x, weight, options);
    golden::expect_close(given(c, "d_x"), g.x, {0, 2e-6, true}, c, "dx");
    golden::expect_close(given(c, "d_weight"), g.weight, {0, 2e-6, true}, c, "d_weight");
    options.initial_state = found.state;
    golden::expect_close(given(c, "output_after"), causal_convolution(given(c, "after"), weight, options).output,
                         {0, 1e-6, true}, c, "after");
  }
}

TEST(NormsOfTransformers, AndTheirGradients) {
  for (const auto& c : golden::cases("recurrent_parts", "norm")) {
    const Tensor x = given(c, "x"), dy = given(c, "dy");
    const golden::Tolerance tolerance{0, 1e-6, true};
    if (c.name == "l2") {
      golden::expect_close(given(c, "y"), l2_norm(x), tolerance, c, "y");
      golden::expect_close(given(c, "d_x"), l2_norm_backward(dy, x), tolerance, c, "dx");
      continue;
    }
    GatedNorm norm(x.size(-1), 1e-6, "norm", c.name == "sigmoid" ? Activation::sigmoid : Activation::silu,
                   c.name == "mamba" ? GatedNormOrder::after_gate : GatedNormOrder::before_gate);
    norm.norm.weight.value = given(c, "weight");
    golden::expect_close(given(c, "y"), norm.forward(x, given(c, "gate")), tolerance, c, "y");
    const GatedNorm::Gradient g = norm.backward(dy);
    golden::expect_close(given(c, "d_x"), g.x, tolerance, c, "dx");
    golden::expect_close(given(c, "d_gate"), g.gate, tolerance, c, "d_gate");
    golden::expect_close(given(c, "d_weight"), norm.norm.weight.grad, tolerance, c, "d_weight");
  }
}

}  // namespace
