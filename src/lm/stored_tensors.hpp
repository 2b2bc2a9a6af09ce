// Models' files have this in common: safetensors' tensors, of one file or of shards, and the config beside them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attn/pretrained.hpp"
#include "io/safetensors_file.hpp"

namespace attn {

inline constexpr const char* kLoadModel = "load_language_model";  // in messages

// A file's own names of its tensors, by their names in Hugging Face's files; those that are not there have the same.
using OwnNames = std::map<std::string, std::string, std::less<>>;
inline std::string own_name(const OwnNames& names, std::string_view name) {
  const auto own = names.find(name);
  return own == names.end() ? std::string(name) : own->second;
}

// The tensors of a Hugging Face folder: of its model.safetensors, or of the shards that its index names.
std::vector<StoredTensor> stored_tensors(const std::filesystem::path& folder);

// Every tensor of one file, in which those are that the index names for it. One that another file has, too, is there
// twice: readers disagree which of them counts.
void add_shard(std::vector<StoredTensor>& tensors, const std::shared_ptr<const io::SafetensorsFile>& file,
               std::set<std::string> named = {});
PretrainedFiles with_tensors(LanguageModelConfig config, std::vector<StoredTensor> tensors);
// The config is in the file's metadata, or else what `beside` finds.
PretrainedFiles open_one(const std::shared_ptr<const io::SafetensorsFile>& file,
                         const std::function<LanguageModelConfig()>& beside);

}  // namespace attn
