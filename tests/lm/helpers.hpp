// Helpers of the tests of released models.
#pragma once

#include <filesystem>
#include <string>

#include "attn/generate.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/folder.hpp"
#include "core/largest.hpp"

namespace attn::test {

namespace fs = std::filesystem;

inline const fs::path kData = fs::path(ATTN_TEST_DATA);

// Returns the families whose models are in data; GPT-2's are in data/gpt2.
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

using Ids = std::vector<std::int64_t>;

inline Ids text_of(std::int64_t tokens, std::int64_t seed = 0) {
  Ids ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back((7 * i * i + 3 * i + seed) % 61);
  return ids;
}

// The config.json of a family with another text in place of one.
inline LanguageModelConfig parsed(const std::string& family, const std::string& from, const std::string& to) {
  return parse_language_model_config(replaced(read(kData / family / "config.json"), from, to), "x");
}

// A text read by a decoder in pieces of any length has the logits of the whole; behind(decoder, text, whole) follows.
template <class F>
void expect_pieces(LanguageModel& model, double tolerance, F&& behind) {
  const Ids text = text_of(60);
  const Tensor whole = model.forward(integers(text));
  for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{60}, {1, 2, 3, 40, 41, 60}, {17, 34, 60}}) {
    Decoder decoder(model, 2);
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      const Tensor logits = decoder.read(1, std::span(text).subspan(first, end - first));
      expect_of_largest(logits, whole.select(0, static_cast<std::int64_t>(end) - 1), tolerance, std::to_string(end));
      first = end;
    }
    behind(decoder, std::span(text), whole);
  }
}

inline std::vector<std::int64_t> ids_of(const Tensor& t) {
  return {t.data<std::int64_t>(), t.data<std::int64_t>() + t.numel()};
}

}  // namespace attn::test
