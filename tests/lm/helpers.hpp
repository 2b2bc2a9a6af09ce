// What the tests of released models share.
#pragma once

#include <filesystem>
#include <string>

#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/folder.hpp"
#include "core/largest.hpp"

namespace attn::test {

namespace fs = std::filesystem;

inline const fs::path kData = fs::path(ATTN_TEST_DATA);

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
