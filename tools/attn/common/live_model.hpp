// What attn report --live puts into a page of a model.
#pragma once

#include <filesystem>
#include <string>

#include "attn/report.hpp"

namespace attn::tool {

// The files of a model, one of safetensors or GGUF, and of its tokenizer, as attn reads them at `path`, or the
// tokenizer at `given`. Throws Error (argument) for a model in shards, one whose tokenizer is not a tokenizer.json, and
// more than 300 MB.
LiveModel live_model(const std::filesystem::path& path, const std::string& given);

}  // namespace attn::tool
