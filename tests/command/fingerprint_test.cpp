// What ranks compare: all that the fingerprint is promised to depend on changes it.
#include "common/fingerprint.hpp"

#include <set>

#include "core/testing.hpp"

namespace attn::test {
namespace {

constexpr std::size_t kBits = 3 * 5 * 32;

// 15 numbers of which one bit is another; the same ones for kBits.
Tensor with_changed_bit(std::size_t bit) {
  Tensor t = Tensor::full({3, 5}, 0.5);
  auto* bytes = static_cast<unsigned char*>(t.raw());
  if (bit < kBits) bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << (bit % 8)));
  return t;
}

std::string of_parameter(const Tensor& value, const std::string& name = "w", std::string_view text = {}) {
  Parameter parameter{.name = name, .value = value, .grad = {}};
  Parameter* const one = &parameter;
  return tool::fingerprint(std::span(&one, 1), text);
}

TEST(Fingerprint, DependsOnEveryBit) {
  std::set<std::string> parameters, states;
  for (std::size_t bit = 0; bit <= kBits; ++bit) {
    parameters.insert(of_parameter(with_changed_bit(bit)));
    states.insert(tool::fingerprint(StateDict{{"w", with_changed_bit(bit)}}));
  }
  EXPECT_EQ(parameters.size(), kBits + 1);
  EXPECT_EQ(states.size(), kBits + 1);
}

TEST(Fingerprint, DependsOnNamesShapesDtypesAndTheText) {
  const Tensor zeros = Tensor::zeros({3, 4});
  const std::set<std::string> all{of_parameter(zeros),
                                  of_parameter(zeros, "v"),
                                  of_parameter(zeros, "w", "text"),
                                  of_parameter(zeros, "w", "texu"),
                                  of_parameter(Tensor::zeros({4, 3})),
                                  of_parameter(Tensor::zeros({3, 8}, DType::f16)),
                                  of_parameter(Tensor::zeros({3, 8}, DType::bf16)),
                                  of_parameter(Tensor::zeros({3, 2}, DType::f64))};
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(of_parameter(zeros), of_parameter(Tensor::zeros({3, 4}))) << "nothing else";
}

}  // namespace
}  // namespace attn::test
