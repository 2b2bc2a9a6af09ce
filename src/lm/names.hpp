// The parts of a model have these names in the files of its family.
#pragma once

#include <string_view>

#include "attn/feed_forward.hpp"
#include "attn/modules.hpp"
#include "attn/recurrent_modules.hpp"

namespace attn {

struct ModelNames {
  const char *embedding, *positions, *blocks, *norm;
  const char *attention, *feed_forward;  // of a block, with a dot at the end, as the next
  AttentionNames of_attention;
  FeedForwardNames of_feed_forward;
  const char* pre_attention;
  const char *attention_sum = "", *feed_forward_sum = "";
  const char* recurrent = attention;  // where a layer keeps a state
  RecurrentNames of_recurrent = {};
};

constexpr ModelNames kGpt2Names{"wte.weight", "wpe.weight",           "h.",  "ln_f", "attn.", "mlp.",
                                {},           {"", "c_fc", "c_proj"}, "ln_1"};
constexpr ModelNames kLlamaNames{"model.embed_tokens.weight",
                                 "",
                                 "model.layers.",
                                 "model.norm",
                                 "self_attn.",
                                 "mlp.",
                                 kLlamaAttentionNames,
                                 {"gate_proj", "up_proj", "down_proj"},
                                 "input_layernorm"};

constexpr ModelNames hybrid(const RecurrentNames& of_recurrent) {
  ModelNames names = kLlamaNames;
  names.recurrent = "linear_attn.", names.of_recurrent = of_recurrent;
  return names;
}

constexpr ModelNames kOlmoHybridNames =
    hybrid({"q_proj", "k_proj", "v_proj", "b_proj", "a_proj", "g_proj", "o_norm", "o_proj", "conv1d", true});
// The files have the first three as one matrix.
constexpr ModelNames kQwenHybridNames = hybrid(
    {"in_proj_q", "in_proj_k", "in_proj_v", "in_proj_b", "in_proj_a", "in_proj_z", "norm", "out_proj", "conv1d", true});

constexpr ModelNames kBertNames{"embeddings.word_embeddings.weight",
                                "embeddings.position_embeddings.weight",
                                "encoder.layer.",
                                "embeddings.LayerNorm",
                                "attention.",
                                "",
                                {"self.query", "self.key", "self.value", "output.dense"},
                                {"", "intermediate.dense", "output.dense"},
                                "",
                                "attention.output.LayerNorm",
                                "output.LayerNorm"};

inline const ModelNames& names_of(std::string_view family) {
  if (family == "olmo_hybrid") return kOlmoHybridNames;
  if (family == "qwen3_5_text") return kQwenHybridNames;
  return family == "gpt2" ? kGpt2Names : family == "bert" ? kBertNames : kLlamaNames;
}

// The norm before the feed-forward is called by what it follows: "post_attention_layernorm" is what comes after
// attention in Llama, and attention's own post-norm where there is one, as in Gemma and OLMo 2.
inline const char* pre_feed_forward_name(std::string_view family, bool post_norm) {
  if (family == "gpt2") return "ln_2";
  return post_norm ? "pre_feedforward_layernorm" : "post_attention_layernorm";
}

}  // namespace attn
