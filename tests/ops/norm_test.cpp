// Norms of weights that somebody else has put in place.
#include "attn/norm.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

// Somebody may put a column, or one number for all, in place of a norm's weights.
TEST(Norm, ReadsWeightsOfAnyStrides) {
  const Tensor x = Tensor::of({{1.0, 2.0, 4.0}, {3.0, -1.0, 0.5}});
  for (const NormForm form : {NormForm::layer, NormForm::rms, NormForm::rms_plus_one}) {
    Norm column(form, 3, 1e-5), packed(form, 3, 1e-5);
    column.weight.value = Tensor::of({{1.0, 9.0}, {2.0, 9.0}, {3.0, 9.0}}).select(1, 0);
    packed.weight.value = column.weight.value.clone();
    EXPECT_TRUE(identical(column.forward(x), packed.forward(x)));
    EXPECT_TRUE(identical(column.backward(x).x, packed.backward(x).x));
    column.weight.value = Tensor::ones({1}).expand({3}), packed.weight.value = Tensor::ones({3});
    EXPECT_TRUE(identical(column.forward(x), packed.forward(x)));
    column.weight.value = Tensor::ones({2});
    expect_error(Error::Kind::shape, {}, [&] { column.forward(x); });
    for (const double epsilon : {0.0, 1e-50, 1e39}) {
      expect_error(Error::Kind::argument, {"epsilon > 0"}, [&] { Norm(form, 3, epsilon); });
    }
  }
  Norm layer(NormForm::layer, 3, 1e-5);
  layer.bias.value = Tensor::ones({2});
  expect_error(Error::Kind::shape, {}, [&] { layer.forward(x); });
}

TEST(Norm, ReadsNothingBehindAWeightThatWasReplaced) {
  const Tensor x = Tensor::of({{1.0, 2.0, 4.0}, {3.0, -1.0, 0.5}});
  for (const NormForm form : {NormForm::layer, NormForm::rms, NormForm::rms_plus_one}) {
    Norm norm(form, 3, 1e-5, "norm");
    norm.forward(x);
    norm.weight.value = Tensor::ones({2});
    expect_error(Error::Kind::shape, {"norm.weight of 3 numbers, as it was", "(2,)"}, [&] { norm.backward(x); });
    expect_error(Error::Kind::shape, {"norm.weight of 3 numbers"}, [&] { norm.output(); });
  }
  Norm layer(NormForm::layer, 3, 1e-5, "norm");
  layer.forward(x);
  layer.bias.value = Tensor::ones({2});
  expect_error(Error::Kind::shape, {"norm.bias of 3 numbers"}, [&] { layer.output(); });
  EXPECT_EQ(layer.backward(x).x.shape(), x.shape());
}

}  // namespace
}  // namespace attn::test
