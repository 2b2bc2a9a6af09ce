// Tests what the backward passes of a network's parts refuse before they read it.
#include "attn/feed_forward.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

// Row counts and widths, in float32 and in bfloat16, as the kernels and the reference take them.
TEST(LinearBackward, RefusesAGradientOfAnotherShape) {
  Generator rng(1);
  Linear linear(4, 3, true, rng);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = Tensor::ones({5, 4}, dtype);
    for (const Shape& shape : {Shape{4, 3}, {6, 3}, {5, 4}, {15}, {1, 5, 3}, {5, 0}}) {
      expect_error(Kind::shape, {"[Linear]", "dy of the output's shape (5, 3)", shape.str()},
                   [&] { linear.backward(Tensor::ones(shape, dtype), x); });
    }
    expect_error(Kind::shape, {"dy of the output's shape (5, 3)"}, [&] { linear.backward({}, x); });
    expect_error(Kind::shape, {"x (…, 4)", "(5, 3)"}, [&] {
      linear.backward(Tensor::ones({5, 3}, dtype), Tensor::ones({5, 3}, dtype));
    });
  }
  EXPECT_FALSE(linear.weight.grad.defined());
  EXPECT_EQ(linear.backward(Tensor::ones({2, 5, 3}), Tensor::ones({2, 5, 4})).shape(), (Shape{2, 5, 4}));
}

TEST(FeedForwardBackward, RefusesAGradientOrAnInputOfAnotherShape) {
  for (const bool gated : {false, true}) {
    FeedForward layer({.width = 4, .inner_width = 6, .gated = gated});
    const Tensor x = Tensor::ones({5, 4});
    layer.forward(x);
    for (const Shape& shape : {Shape{4, 4}, {5, 6}, {20}, {1, 5, 4}}) {
      expect_error(Kind::shape, {"[FeedForward]", "dy of the forward pass's shape (5, 4)", shape.str()},
                   [&] { layer.backward(Tensor::ones(shape), x); });
      expect_error(Kind::shape, {"x of the forward pass's shape (5, 4)", shape.str()},
                   [&] { layer.backward(x, Tensor::ones(shape)); });
    }
    for (const Parameter* p : layer.parameters()) EXPECT_FALSE(p->grad.defined()) << p->name;
    EXPECT_EQ(layer.backward(x, x).shape(), x.shape());
  }
}

TEST(Backward, RefusesToAddToAGradientOfAnotherShape) {
  Generator rng(1);
  Linear linear(4, 3, true, rng);
  const Tensor x = Tensor::ones({5, 4}), dy = Tensor::ones({5, 3});
  for (const Shape& shape : {Shape{2, 4}, {4, 3}, {12}, {3, 5}}) {
    linear.weight.grad = Tensor::zeros(shape);
    expect_error(Kind::shape, {"[backward]", "weight, (3, 4)", shape.str()}, [&] { linear.backward(dy, x); });
  }
  linear.zero_grad();
  linear.backward(dy, x);
  const Tensor once = linear.weight.grad.clone();
  linear.weight.grad = Tensor::zeros({4, 3}).transpose(0, 1);
  linear.backward(dy, x);
  EXPECT_TRUE(identical(linear.weight.grad, once));
}

}  // namespace
}  // namespace attn::test
