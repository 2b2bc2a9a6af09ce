// Rows of a dense layer have the bits that they have among others, in every dtype and precision.

#include "attn/error.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"
#include "kernels/use.hpp"
#include "ops/dense.hpp"
#include "ops/stored.hpp"

namespace attn::test {
namespace {

struct Layer {
  Parameter weight;
  Tensor bias;
};

Layer layer_of(std::mt19937& rng, std::int64_t n, std::int64_t k, DType dtype) {
  Layer layer{{"w", uniform(rng, {n, k}, DType::f32), {}}, uniform(rng, {n}, DType::f32)};
  Parameter* all[] = {&layer.weight};
  store_matrices(all, dtype);
  return layer;
}

// Row i of x alone, and all of them.
void expect_same_bits(const Layer& layer, const Tensor& x, std::int64_t i, ProductOptions options) {
  options.scales = layer.weight.scales;
  const Tensor all = project(x, layer.weight.value, layer.bias, options);
  if (options.residual.defined()) options.residual = options.residual.slice(0, i, i + 1);
  const Tensor alone = project(x.slice(0, i, i + 1), layer.weight.value, layer.bias, options);
  ASSERT_EQ(alone.dtype(), options.dtype.value_or(x.dtype()));
  EXPECT_TRUE(identical(alone, all.slice(0, i, i + 1).contiguous()))
      << name(x.dtype()) << " · " << name(layer.weight.value.dtype()) << ", " << name(options.precision)
      << (options.residual.defined() ? ", residual" : "");
}

TEST(FewRows, HaveTheBitsOfManyInEveryDtypeAndPrecision) {
  const unsigned seed = drawn_seed();
  std::mt19937 rng(seed);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(rng); };
  for (const kernels::Target& target : kernels::targets()) {
    if (!target.supported) continue;
    const kernels::UseKernels use(*target.kernels);
    for (const DType stored : {DType::f32, DType::bf16, DType::i8, DType::f32, DType::bf16, DType::i8}) {
      const std::int64_t m = 24 + draw(20), n = draw(150), k = draw(200);
      SCOPED_TRACE(testing::Message() << target.isa << ", seed " << seed << ": " << m << " " << n << " " << k);
      const Layer layer = layer_of(rng, n, k, stored);
      const Tensor rows = uniform(rng, {m, k}, DType::f32),
                   residual = uniform(rng, {m, n}, DType::f32);
      for (const Tensor& x : {rows, rows.to(DType::bf16)}) {
        for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
          for (const DType dtype : {DType::f32, DType::bf16}) {
            expect_same_bits(layer, x, draw(m) - 1, {.precision = precision, .dtype = dtype});
            expect_same_bits(layer, x, draw(m) - 1, {.precision = precision, .dtype = dtype, .residual = residual});
          }
        }
      }
    }
  }
}

// A finite sum ends at the largest number of the result's dtype, in few rows and in many.
TEST(FewRows, EndAtTheLargestNumberOfTheirDtype) {
  const Layer layer{{"w", Tensor::full({3, 40}, 1), {}}, Tensor{}};
  for (const std::int64_t rows : {1, 30}) {
    const Tensor x = Tensor::full({rows, 40}, 8.49e36);  // their sum is past bfloat16's range, within float32's
    const Tensor y = project(x, layer.weight.value, {}, {.dtype = DType::bf16});
    EXPECT_EQ(y.at({rows - 1, 2}), 0x1.fep127);
  }
}

}  // namespace
}  // namespace attn::test
