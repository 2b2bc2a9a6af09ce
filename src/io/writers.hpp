// Tensors into files that are open: what the save functions do between opening and committing.
#pragma once

#include <optional>

#include "attn/io.hpp"
#include "io/output_file.hpp"

namespace attn::io {

void write_npy(OutputFile& file, const Tensor& tensor);
void write_npz(OutputFile& file, const NamedTensors& tensors);
void write_safetensors(OutputFile& file, const NamedTensors& tensors);
// Returns what stands before the elements. No tensor's memory is read for it.
std::string safetensors_start(const NamedTensors& tensors);
std::string safetensors_bytes(const NamedTensors& tensors);  // the whole file
void write_csv(OutputFile& file, const Tensor& tensor);
// Returns the format that the name's ending promises, in letters of either case.
std::optional<Format> format_by_name(const std::filesystem::path& path);
// In the format that the name of `path` asks for, as save_tensor().
void write_tensor(OutputFile& file, const std::filesystem::path& path, const Tensor& tensor);

}  // namespace attn::io
