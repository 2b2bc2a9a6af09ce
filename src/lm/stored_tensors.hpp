// The tensors of a Hugging Face folder: of its model.safetensors, or of the shards that its index names.
#pragma once

#include <filesystem>
#include <vector>

#include "attn/pretrained.hpp"

namespace attn {

std::vector<StoredTensor> stored_tensors(const std::filesystem::path& folder);

}  // namespace attn
