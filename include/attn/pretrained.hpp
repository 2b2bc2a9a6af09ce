// Released language models in files: Hugging Face folders and GGUF. (GPT-2: attn/checkpoint.hpp.)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/language_model.hpp"

namespace attn {

// The families whose config.json is understood, by their model_type.
std::vector<std::string> language_model_families();

// config.json → what it describes, by the family's own defaults. Throws Error (data), naming the key, for a family, a
// part or a number that is not supported.
LanguageModelConfig parse_language_model_config(std::string_view json, std::string_view source = {});

// A tensor of a model's files. Its elements are read when they are asked for: in float32, bfloat16 or float16.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "Q4_K", …
  Shape shape;
  std::uint64_t bytes = 0;
  std::function<Tensor(DType)> load;
};

// What a folder or a GGUF file holds, before anything is made of it.
struct PretrainedFiles {
  LanguageModelConfig config;
  std::string format;                 // "safetensors" or "gguf"
  std::vector<StoredTensor> tensors;  // in the names of Hugging Face's files, GGUF's too
};

// `path` is a folder with a config.json and a model.safetensors, or a model.safetensors.index.json and its shards; or a
// .gguf file of the architectures llama, qwen2, qwen3, gemma2, gemma3, smollm3, olmo2, phi3 or granite. Every length is
// compared with the files. Throws Error: (file), and (data) for what is cut off, missing, or of another format.
PretrainedFiles open_pretrained(const std::filesystem::path& path);

// The model, with its matrices in float32, bfloat16 or int8 (as store_matrices() makes it) and its vectors in float32.
// Its products are of `precision`. Tensors are read one by one: beside the model's own memory there is that of the
// largest. Throws Error (data), naming the tensor, for a missing or unknown tensor, or a shape that is not the
// config's.
LanguageModel load_language_model(const std::filesystem::path& path, DType weights = DType::f32,
                                  Precision precision = Precision::highest);

// Writes config.json and model.safetensors into `folder`, which must be there, as transformers' from_pretrained() reads
// them; tensors have the dtypes in which the model keeps them, float32 or bfloat16. Each file is whole or untouched. A
// process that is killed leaves the old model, the new one, or a folder without weights, and never the weights of one
// under the config of the other.
// Throws Error (argument) for a model that was not made of a config.json (LanguageModelConfig::json), and (dtype) for
// one in int8.
void save_language_model(const std::filesystem::path& folder, LanguageModel& model);

// Whether open_pretrained() is meant: a GGUF file, or a folder whose config.json is not GPT-2's.
bool is_language_model(const std::filesystem::path& path);

}  // namespace attn
