// Products of few rows: the same bits as the product of many, for every instruction set.
#include <cstring>
#include <vector>

#include "attention/element.hpp"
#include "attn/attention.hpp"
#include "attn/tensor.hpp"
#include "core/seed.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

// y = x · weightᵀ + bias by the many rows' kernel.
Tensor many(const Kernels& kernel, const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision) {
  const std::int64_t m = x.size(0), n = weight.size(0), k = weight.size(1);
  const Tensor y = Tensor::empty({m, n});
  const Product p{.m = m,
                  .n = n,
                  .k = k,
                  .a = x.raw(),
                  .a_row = x.stride(0),
                  .a_depth = 1,
                  .b = weight.raw(),
                  .b_depth = 1,
                  .b_column = weight.stride(0),
                  .bias = bias.defined() ? bias.data<float>() : nullptr,
                  .c = y.raw(),
                  .c_row = n,
                  .a_element = element(x.dtype()),
                  .b_element = element(weight.dtype()),
                  .precision = precision};
  const ProductPlan plan = kernels::plan(p, kernel, 1);
  const Poisoned packed(plan.packed);
  for (std::int64_t i = 0; i < plan.pack_tasks; ++i) plan.kernel->pack(p, plan, packed.data.get(), i);
  std::vector<std::int64_t> tasks(static_cast<std::size_t>(plan.tasks[0]));
  std::iota(tasks.begin(), tasks.end(), 0);
  EXPECT_TRUE(run_product(p, plan, packed.data.get(), tasks));
  return y;
}

// Every number of 8 bits.
Tensor bytes(std::mt19937& random, const Shape& shape) {
  std::uniform_int_distribution<int> distribution(-128, 127);
  const Tensor t = Tensor::empty(shape, DType::i8);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<std::int8_t>()[i] = static_cast<std::int8_t>(distribution(random));
  return t;
}

struct Result {
  Tensor y;
  bool in_range = true;
};

Result few(const Kernels& kernel, const Tensor& x, const Tensor& weight, const Tensor& bias,
           Precision precision = Precision::highest) {
  const std::int64_t m = x.size(0), n = weight.size(0), k = weight.size(1);
  Result result{Tensor::full({m, n}, 7)};
  const Tensor rows = x.to(DType::f32);
  const FewRows p{m,
                  n,
                  k,
                  rows.data<float>(),
                  rows.stride(0),
                  element(weight.dtype()),
                  weight.raw(),
                  weight.stride(0),
                  bias.defined() ? bias.data<float>() : nullptr,
                  result.y.data<float>(),
                  n,
                  element(x.dtype()),
                  precision};
  const FewRowsPlan plan = kernels::plan(p, kernel, 1);
  for (std::int64_t i = 0; i < plan.tasks[0]; ++i) {
    const Poisoned scratch(plan.scratch);
    result.in_range &= plan.kernel->run(p, plan, i, scratch.data.get());
  }
  return result;
}

class FewRowsOf : public Units {};
INSTANTIATE_TEST_SUITE_P(Kernels, FewRowsOf, testing::ValuesIn(unit_names()),
                         [](const auto& param) { return param.param; });

TEST_P(FewRowsOf, AreTheBitsOfManyRows) {
  const unsigned seed = test::drawn_seed();
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 60; ++round) {
    const std::int64_t m = draw(round % 5 == 0 ? 20 : 9), n = draw(round % 3 == 0 ? 300 : 40);
    const std::int64_t k = draw(round % 4 == 0 ? 600 : round % 2 == 0 ? 200 : 40);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << m << " " << n << " " << k);
    constexpr Precision precisions[] = {Precision::highest, Precision::high, Precision::medium};
    const Precision precision = precisions[round % 3];
    const Tensor all_x = test::normal(random, {m, k + 3}), wide = test::normal(random, {n, k + 5});
    const Tensor x = (round % 4 == 2 ? all_x.to(DType::bf16) : all_x).slice(1, 0, k);
    const Tensor bias = round % 4 == 1 ? Tensor{} : test::normal(random, {n});
    for (const Tensor& all : {wide, wide.to(DType::bf16), bytes(random, wide.shape())}) {
      const Tensor weight = all.slice(1, 1, k + 1), same = all.dtype() == DType::i8 ? weight.to(DType::bf16) : weight;
      const Result found = few(kernels_, x, weight, bias, precision);
      EXPECT_TRUE(found.in_range);
      std::vector<Tensor> wanted{many(kernels_, x, same, bias, precision)};
      if (x.dtype() == DType::f32) wanted.push_back(many(kernels_, x, weight.to(DType::f32), bias, precision));
      for (const Tensor& y : wanted) {
        EXPECT_EQ(std::memcmp(y.raw(), found.y.raw(), static_cast<std::size_t>(m * n) * 4), 0)
            << name(weight.dtype()) << " " << name(precision);
      }
    }
  }
}

TEST_P(FewRowsOf, TellWhatLeavesTheRange) {
  for (const std::int64_t k : {1, 70}) {
    Tensor x = Tensor::full({2, k}, 1), weight = Tensor::full({100, k}, 1);
    EXPECT_TRUE(few(kernels_, x, weight, {}).in_range);
    weight.set({99, k - 1}, 3e38), x.set({1, k - 1}, 3e38);
    EXPECT_FALSE(few(kernels_, x, weight, {}).in_range);
  }
}

}  // namespace
}  // namespace attn::kernels
