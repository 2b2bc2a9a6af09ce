// Products of few rows: the same bits as the product of many, for every instruction set of this processor.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attn/tensor.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

using kernels::Kernels;

Tensor normal(std::mt19937& random, const Shape& shape) {
  std::normal_distribution<float> distribution;
  const Tensor t = Tensor::empty(shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = distribution(random);
  return t;
}

// y = x · weightᵀ + bias by the many rows' kernel.
Tensor many(const Kernels& kernel, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t m = x.size(0), n = weight.size(0), k = weight.size(1);
  const Tensor y = Tensor::empty({m, n});
  const kernels::Product p{m,
                           n,
                           k,
                           x.data<float>(),
                           x.stride(0),
                           1,
                           weight.data<float>(),
                           1,
                           weight.stride(0),
                           bias.defined() ? bias.data<float>() : nullptr,
                           y.data<float>(),
                           n};
  const Tensor packed = Tensor::empty({static_cast<std::int64_t>(kernel.packed_bytes(p))}, DType::u8);
  std::vector<float> scratch(kernel.product_scratch(p) / sizeof(float) + 16);
  void* aligned = scratch.data();
  std::size_t space = scratch.size() * sizeof(float);
  std::align(64, kernel.product_scratch(p), aligned, space);
  for (std::int64_t i = 0; i < kernel.pack_tasks(p); ++i) kernel.pack(p, packed.raw(), i);
  for (std::int64_t i = 0; i < kernel.product_tasks(p); ++i) {
    EXPECT_TRUE(kernel.product(p, packed.raw(), i, aligned));
  }
  return y;
}

struct Result {
  Tensor y;
  bool in_range = true;
};

Result few(const Kernels& kernel, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t m = x.size(0), n = weight.size(0), k = weight.size(1);
  Result result{Tensor::full({m, n}, 7)};
  const auto element = weight.dtype() == DType::bf16 ? kernels::Element::bf16 : kernels::Element::f32;
  const kernels::FewRows p{m,
                           n,
                           k,
                           x.data<float>(),
                           x.stride(0),
                           element,
                           weight.raw(),
                           weight.stride(0),
                           bias.defined() ? bias.data<float>() : nullptr,
                           result.y.data<float>(),
                           n};
  for (std::int64_t i = 0; i < kernel.few_rows_tasks(p); ++i) result.in_range &= kernel.few_rows(p, i);
  return result;
}

template <class F>
void for_targets(const F& f) {
  for (const auto& target : kernels::targets()) {
    if (!target.supported) continue;
    SCOPED_TRACE(std::string(target.isa));
    f(*target.kernels);
  }
}

TEST(FewRows, AreTheBitsOfManyRows) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 60; ++round) {
    const std::int64_t m = draw(9), n = draw(round % 3 == 0 ? 300 : 40), k = draw(round % 2 == 0 ? 200 : 40);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << m << " " << n << " " << k);
    const Tensor x = normal(random, {m, k + 3}).slice(1, 0, k), wide = normal(random, {n, k + 5});
    const Tensor bias = round % 4 == 0 ? Tensor{} : normal(random, {n});
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor weight = wide.to(dtype).slice(1, 1, k + 1);
      for_targets([&](const Kernels& kernel) {
        const Tensor wanted = many(kernel, x, weight.to(DType::f32), bias);
        const Result found = few(kernel, x, weight, bias);
        EXPECT_TRUE(found.in_range);
        EXPECT_EQ(std::memcmp(wanted.raw(), found.y.raw(), static_cast<std::size_t>(m * n) * 4), 0) << name(dtype);
      });
    }
  }
}

TEST(FewRows, TellWhatLeavesTheRange) {
  for_targets([](const Kernels& kernel) {
    for (const std::int64_t k : {1, 70}) {
      Tensor x = Tensor::full({2, k}, 1), weight = Tensor::full({100, k}, 1);
      EXPECT_TRUE(few(kernel, x, weight, {}).in_range);
      weight.set({99, k - 1}, 3e38), x.set({1, k - 1}, 3e38);
      EXPECT_FALSE(few(kernel, x, weight, {}).in_range);
    }
  });
}

}  // namespace
}  // namespace attn
