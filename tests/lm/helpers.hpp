// What the tests of released models share.
#pragma once

#include <filesystem>
#include <string>

#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/folder.hpp"
#include "core/testing.hpp"

namespace attn::test {

namespace fs = std::filesystem;

inline const fs::path kData = fs::path(ATTN_TEST_DATA);

// |found - expected| <= tolerance · the largest |expected|
inline void expect_of_largest(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.shape().str(), expected.shape().str()) << what;
  const auto a = values(found), b = values(expected);
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::fabs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::fabs(a[i] - b[i]), tolerance * largest) << what << ", element " << i << ": found " << a[i];
  }
}

// Those whose models are in data: GPT-2's are in data/gpt2.
inline std::vector<std::string> families() {
  std::vector<std::string> names = language_model_families();
  std::erase(names, "gpt2");
  return names;
}

// An attention layer with the names of Llama, its weights zeros.
inline AttentionLayer grouped_query(ModuleConfig config) {
  Generator unused(0);
  config.d_out = config.d_in, config.initialise = false;
  if (config.query_key_norm == QueryKeyNorm::none) config.norm = NormForm::rms;
  return AttentionLayer(config, unused, {}, kLlamaAttentionNames);
}

inline std::vector<std::int64_t> ids_of(const Tensor& t) {
  return {t.data<std::int64_t>(), t.data<std::int64_t>() + t.numel()};
}

}  // namespace attn::test
