// What a model's files have in common: safetensors' tensors, of one file or of shards, and the config beside them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attn/pretrained.hpp"
#include "io/safetensors_file.hpp"

namespace attn {

inline constexpr const char* kLoadModel = "load_language_model";  // in messages

// The tensors of a Hugging Face folder: of its model.safetensors, or of the shards that its index names.
std::vector<StoredTensor> stored_tensors(const std::filesystem::path& folder);

// Every tensor of one file, or those that the index says are in it.
void add_shard(std::vector<StoredTensor>& tensors, const std::shared_ptr<const io::SafetensorsFile>& file,
               const std::set<std::string>* wanted);
PretrainedFiles with_tensors(LanguageModelConfig config, std::vector<StoredTensor> tensors);
// The config is in the file's metadata, or else what `beside` finds.
PretrainedFiles open_one(const std::shared_ptr<const io::SafetensorsFile>& file,
                         const std::function<LanguageModelConfig()>& beside);

}  // namespace attn
