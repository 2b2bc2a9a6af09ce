// Helpers of the tests of experiments.
#pragma once

#include <filesystem>
#include <string>

#include "attn/experiment.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/kept.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline const std::filesystem::path kModels = std::filesystem::path(ATTN_TEST_DATA) / "../../lm/data";

inline std::filesystem::path model_path(const std::string& family) {
  return kModels / (family == "gpt2" ? "gpt2/tied-tanh-f32" : family);
}

// |found - expected| <= 1e-5 · max(1, the largest |expected|)
inline void expect_close(const Tensor& found, const Tensor& expected, const std::string& what) {
  const auto a = values(kept(found, expected)), b = values(expected);
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1;
  for (const double x : b) largest = std::max(largest, std::fabs(x));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5 * largest) << what << ", element " << i;
}

inline void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_EQ(values(a), values(b)) << what;
}

}  // namespace attn::test
