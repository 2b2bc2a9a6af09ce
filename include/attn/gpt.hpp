// GPT-2 (Radford et al. 2019) by its few sizes: one of the models of attn/language_model.hpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attn/language_model.hpp"

namespace attn {

struct GPTConfig {
  std::int64_t vocab_size = 256;  // 256: bytes
  std::int64_t context_length = 256;
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;
  double dropout = 0;     // in train mode: on the embeddings, the attention weights and both branches of a block
  double epsilon = 1e-5;  // of LayerNorm
  Activation gelu = Activation::gelu_tanh;
  bool tied = true;                          // the head shares wte's weight, as GPT-2's does; false: lm_head of its own
  Precision precision = Precision::highest;  // of the products, forward and backward; weights stay float32

  // The layers take these from the first on, and then again: {gated_delta, gated_delta, gated_delta, softmax} is three
  // to one. Empty: softmax in all.
  std::vector<Mixer> mixers = {};

  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

// "117M", "345M", "762M" or "1.5B", with GPT-2's vocabulary of 50257 and 1024 tokens of context; dropout 0.1.
// Throws Error (argument) for another name.
GPTConfig gpt2(std::string_view size);

// LayerNorm, learned positions, a feed-forward four times as wide inside with GELU and no gate, and biases. Throws
// Error (argument) for sizes that are none.
LanguageModelConfig language_model_config(const GPTConfig& config);
// The other way, for a config of the family gpt2.
GPTConfig gpt_config(const LanguageModelConfig& config);

// Parameters are named as in Hugging Face's GPT-2, but for what the attention layer keeps apart: h.0.attn.W_query,
// W_key, W_value and out_proj for c_attn and c_proj; every Linear's weight is (d_out, d_in), the transpose of Hugging
// Face's Conv1D.
class GPT : public LanguageModel {
 public:
  GPT(const GPTConfig& config, Generator& rng, Initial initial = Initial::drawn)
      : LanguageModel(language_model_config(config), rng, initial) {}
  GPTConfig config() const { return gpt_config(LanguageModel::config()); }
};

}  // namespace attn
