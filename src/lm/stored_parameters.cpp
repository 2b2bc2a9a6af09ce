#include "lm/stored_parameters.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace attn {
namespace {

using Renamed = std::pair<std::string_view, std::string_view>;  // a part, and what holds it in the files

constexpr std::array<Renamed, 4> kGpt2{
    {{"W_query", "c_attn"}, {"W_key", "c_attn"}, {"W_value", "c_attn"}, {"out_proj", "c_proj"}}};
constexpr std::array<Renamed, 5> kPhi3{{{"q_proj", "qkv_proj"},
                                        {"k_proj", "qkv_proj"},
                                        {"v_proj", "qkv_proj"},
                                        {"gate_proj", "gate_up_proj"},
                                        {"up_proj", "gate_up_proj"}}};
constexpr std::array<Renamed, 2> kOlmoHybrid{
    {{"input_layernorm", "attention_layer_norm"}, {"post_attention_layernorm", "feedforward_layer_norm"}}};
constexpr std::array<Renamed, 3> kQwenHybrid{
    {{"in_proj_q", "in_proj_qkv"}, {"in_proj_k", "in_proj_qkv"}, {"in_proj_v", "in_proj_qkv"}}};

std::span<const Renamed> renamed(std::string_view family) {
  if (family == "gpt2") return kGpt2;
  if (family == "phi3") return kPhi3;
  if (family == "olmo_hybrid") return kOlmoHybrid;
  if (family == "qwen3_5_text") return kQwenHybrid;
  return {};
}

}  // namespace

std::string stored_name(std::string name, std::string_view family) {
  for (const auto& [part, whole] : renamed(family)) {
    const std::string in_name = std::string(".").append(part).append(".");
    if (const auto at = name.find(in_name); at != std::string::npos) {
      return name.replace(at, in_name.size(), std::string(".").append(whole).append("."));
    }
  }
  return name;
}

namespace {

// GPT-2's layers are Conv1D: c_attn, c_proj and c_fc.
bool is_transposed(std::string_view name, std::string_view family) {
  return family == "gpt2" && name.find(".c_") != std::string_view::npos && name.ends_with(".weight");
}

}  // namespace

Shape StoredParameters::shape() const {
  Shape all = parts[0]->value.shape();
  for (std::size_t i = 1; i < parts.size(); ++i) all[0] += parts[i]->value.size(0);
  if (transposed) std::swap(all[0], all[1]);
  return all;
}

std::vector<StoredParameters> stored_parameters(LanguageModel& model) {
  const std::string& family = model.config().family;
  std::vector<StoredParameters> all;
  for (Parameter* p : model.parameters()) {
    const std::string name = stored_name(p->name, family);
    // A layer's weights and biases come in turns: W_query.weight, W_query.bias, W_key.weight, …
    const auto known = std::min<std::size_t>(all.size(), 2);
    auto same = std::find_if(all.end() - static_cast<std::ptrdiff_t>(known), all.end(),
                             [&](const StoredParameters& s) { return s.name == name; });
    if (same == all.end()) same = all.insert(same, {name, {}, is_transposed(name, family)});
    same->parts.push_back(p);
  }
  return all;
}

bool passed_over(std::string_view name, const LanguageModelConfig& config) {
  const bool buffer =
      name.ends_with("rotary_emb.inv_freq") ||
      (config.family == "gpt2" && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")));
  // Beside the text part of Qwen3.5 stand the layers of pictures, and those that guess tokens ahead.
  const bool beside =
      config.family == "qwen3_5_text" && (name.starts_with("model.visual.") || name.starts_with("mtp."));
  return buffer || beside || name.starts_with(kTrainingTensors) || (config.tied && name == kHeadTensor);
}

}  // namespace attn
