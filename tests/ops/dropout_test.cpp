// Dropout's backward pass: what it refuses. That its elements are PyTorch's: golden/train_test.cpp.
#include "attn/dropout.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

TEST(DropoutBackward, RefusesAGradientOfAnotherShapeAndOneBeforeAForwardPass) {
  for (const double p : {0.0, 0.5}) {
    Dropout dropout(p, Generator(1));
    dropout.train();
    const auto back = [&](const Shape& shape) { return dropout.backward(Tensor::ones(shape)).x; };
    expect_error(Kind::argument, {"[Dropout]", "forward() before backward()"}, [&] { back({2, 3}); });
    dropout.forward(Tensor::ones({2, 3}));
    EXPECT_EQ(back({2, 3}).shape(), (Shape{2, 3}));
    if (p > 0) {
      for (const Shape& shape : {Shape{2, 4}, {1, 3}, {6}, {}}) {
        expect_error(Kind::shape, {"dy of x's shape (2, 3)", shape.str()}, [&] { back(shape); });
      }
    }
    const NoGrad no_grad;
    dropout.forward(Tensor::ones({2, 3}));
    expect_error(Kind::argument, {"forward() before backward()"}, [&] { back({2, 3}); });
  }
}

}  // namespace
}  // namespace attn::test
