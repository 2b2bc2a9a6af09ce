// The files that a page of a model computes by, for attn report --live and attn.report(model, live=True).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "attn/report.hpp"

namespace attn::tool {

// The files of a model, safetensors or GGUF, its shards as one, and of its tokenizer, as attn reads them at `path`, or
// the tokenizer at `given`. Past 7.5 MB, with which a page would have more than 10 MB, float32 matrices of safetensors
// are in 8 bits. Throws Error (argument), in the name of `who`, for a model whose tokenizer is not a tokenizer.json,
// and more than 300 MB.
LiveModel live_model(const std::filesystem::path& path, const std::string& given, std::string_view who);

// Adds the weights of the models that a run of attn train has kept beside the one at `path`, in 8 bits where all of
// them would take more than 10 MB. Throws Error for none, for those of another run, and for more than 100 MB.
void add_kept(const std::filesystem::path& path, LiveModel& model, std::string_view who);

// A page whose model is in 8 bits says so.
inline constexpr const char* kInBytes =
    "This page holds the model's matrices in 8 bits, each row by its largest number, since it would be larger than "
    "10 MB otherwise. What it computes is of those, and near to what the model itself gives.";

}  // namespace attn::tool
