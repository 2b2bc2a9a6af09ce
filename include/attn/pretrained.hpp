// Language models in files: Hugging Face folders, single safetensors files and GGUF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/language_model.hpp"
#include "attn/quantized.hpp"
#include "attn/random.hpp"

namespace attn {

// The families whose config.json is understood, by their model_type.
std::vector<std::string> language_model_families();

// config.json → what it describes, by the family's own defaults. Throws Error (data), naming the key, for a family, a
// part or a number that is not supported.
LanguageModelConfig parse_language_model_config(std::string_view json, std::string_view source = {});

// A tensor of a model's files. Its elements are read when they are asked for: in float32, bfloat16 or float16.
struct StoredTensor {
  std::string name = {};
  std::string dtype = {};  // "F32", "BF16", "Q4_K", …
  Shape shape = {};
  std::uint64_t bytes = 0;
  std::function<Tensor(DType)> load = {};
  // Rows [first, last) of a quantised matrix, as they are in the file; null where `load` is all there is.
  std::function<std::shared_ptr<const QuantizedMatrix>(std::int64_t first, std::int64_t last)> load_blocks = {};
};

// PretrainedFiles has what a folder or a GGUF file holds, before anything is made of it.
struct PretrainedFiles {
  LanguageModelConfig config = {};
  std::string format = {};                 // "safetensors" or "gguf"
  std::vector<StoredTensor> tensors = {};  // in the names of Hugging Face's files, GGUF's too
  // The file's own names of tensors, for messages, by the names above, where the file has others.
  std::map<std::string, std::string, std::less<>> names = {};
};

// `path` is a folder with a config.json and a model.safetensors, or a model.safetensors.index.json and its shards; a
// .safetensors file, whose config is in its metadata, or config.json beside it; or a .gguf file of the architectures
// llama, qwen2, qwen3, gemma2, gemma3, smollm3, olmo2, phi3 or granite. Every length is compared with the files. Throws
// Error: (file), and (data) for what is cut off, missing, or of another format.
PretrainedFiles open_pretrained(const std::filesystem::path& path);
// The same of the bytes of one file, safetensors or GGUF, which the caller keeps while tensors are loaded, and of the
// text of its config.json, which counts where the file has no config. `source` names the file in messages.
PretrainedFiles open_pretrained(std::span<const std::byte> bytes, std::string_view config, std::string_view source);

// The model, with its matrices in float32, bfloat16 or int8 (as store_matrices() makes it) and its vectors in float32;
// without a dtype, as the file has them: quantised ones in their blocks, exactly, and others in bfloat16 where they are
// that, else in float32. A model with blocks generates and is evaluated; it has no gradients, and is not saved.
// Its products are of `precision`, and `rng` is for dropout in train mode. Tensors are read one by one: beside the
// model's own memory there is that of the largest. What says nothing is passed over: buffers of masks and frequencies,
// a tied model's lm_head, and tensors named "training.…". Throws Error (data), naming the tensor, for a missing or
// unknown tensor, or a shape that is not the config's.
LanguageModel load_language_model(const std::filesystem::path& path, std::optional<DType> weights = DType::f32,
                                  Precision precision = Precision::highest, Generator rng = Generator(0));
// Does the same with files that open_pretrained() has opened; `source` names them in messages.
LanguageModel load_language_model(PretrainedFiles files, std::string_view source,
                                  std::optional<DType> weights = DType::f32, Precision precision = Precision::highest,
                                  Generator rng = Generator(0));
// In which dtype generation usually keeps the weights of these files: as the file has them (none) for GGUF, float32
// else.
std::optional<DType> usual_weights(const std::filesystem::path& path);
// Does the same for the family gpt2, in float32.
GPT load_gpt(const std::filesystem::path& path, Generator rng = Generator(0), Precision precision = Precision::highest);

// Writes config.json and model.safetensors into a folder, which must be there, as transformers' from_pretrained() reads
// them; or, for a path that ends in .safetensors and has another name, that one file, which can be moved alone: every
// file that is written has its config in its metadata, "config", beside what the caller gives. Tensors have the dtypes
// in which the model keeps them, float32 or bfloat16. Each file is whole or untouched. A process that is killed leaves
// the old model, the new one, or a folder without weights, and never the weights of one under the config of the other.
// A model that was not made of a config.json gets one (config_json()). Throws Error (argument) where its family cannot
// say what it is, and for metadata named "config" or "format"; (dtype) for a model in int8.
void save_language_model(const std::filesystem::path& path, LanguageModel& model,
                         const std::map<std::string, std::string>& metadata = {});

// A config as its family's config.json. Throws Error (argument) where that would not be read as the same config.
std::string config_json(const LanguageModelConfig& config);

// These write and read config.json as transformers' GPT2Config has it. Missing keys have its defaults, and dropout is
// resid_pdrop.
std::string gpt_config_json(const GPTConfig& config);
GPTConfig parse_gpt_config(std::string_view json, std::string_view source);

}  // namespace attn
