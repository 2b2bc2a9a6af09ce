#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attn/pretrained.hpp"
#include "io/json_object.hpp"

namespace attn {

// OLMo-Hybrid: OLMo 3's layers without windows, and between them gated delta rules in layers of Llama's shape.
void read_olmo_hybrid(const io::JsonObject& json, LanguageModelConfig& config);

// Its files have one convolution of queries, keys and values in three tensors, q_conv1d, k_conv1d and v_conv1d:
// transformers cuts it into thirds, wherever the keys begin. They become conv1d, as they are in a model.
void join_convolutions(std::vector<StoredTensor>& tensors);
// Cuts them for a file again, where keys and values begin.
std::vector<std::pair<std::string, Tensor>> split_convolution(const std::string& name, const Tensor& all,
                                                              const GatedDeltaConfig& sizes);

// Returns names and shapes of a file's tensors that a layer's state has to fit. `layer`: as "model.layers.0.".
std::vector<std::pair<std::string, Shape>> hybrid_shapes(const LanguageModelConfig& config, const std::string& layer);

// The text part of Qwen3.5, without experts: a quarter of each head turns, and a gate closes what softmax attention
// gives.
void read_qwen3_5(const io::JsonObject& json, LanguageModelConfig& config);

}  // namespace attn
