// Tensors in files: .npy, .npz, safetensors, CSV; GGUF is read only. A reader checks every size that a
// file claims against the bytes that are there. A writer leaves a whole file, or the old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/tensor.hpp"

namespace attn::io {

// All functions throw Error: kind `file` when a file cannot be opened, read or written, kind `data` when
// its content is not what the format says. `source` names the bytes' origin in that message.

enum class Format { npy, npz, safetensors, csv, gguf };

struct NamedTensors {
  Format format = Format::safetensors;
  std::vector<std::pair<std::string, Tensor>> tensors = {};  // in file order; .npy and CSV: one, named ""
  // safetensors' __metadata__; GGUF's values as text, of a list only its length: attn/gguf.hpp has them as they are.
  std::map<std::string, std::string> metadata = {};

  const Tensor* find(std::string_view name) const noexcept;
};

// `max_bytes` is the most bytes that a compressed file may unpack to. Only .npz is ever compressed: a few MB can unpack
// to a thousand times as much, and fill the memory. 0, the default, means 1 GB (10⁹), or 16 times the file's size where
// that is more.
//
// The content decides the format, and not the name: a zip is npz, "\x93NUMPY" npy, "GGUF" GGUF (its tensors widened to
// float32), a header length and '{' safetensors, else CSV.
NamedTensors parse(std::span<const std::byte> bytes, std::string_view source, std::uint64_t max_bytes = 0);
NamedTensors load(const std::filesystem::path& path, std::uint64_t max_bytes = 0);  // "-" is standard input
// Reads the only tensor of a file, or of several the one named `name`; of an .npz no other member is read. Throws Error
// (argument), which lists the names, where it is not clear which one is meant.
Tensor load_tensor(const std::filesystem::path& path, std::string_view name = {}, std::uint64_t max_bytes = 0);

// All tensors of a file by their names, as Module::load_state_dict() takes them. Throws Error (data) for a name that
// stands twice.
std::map<std::string, Tensor> load_state_dict(const std::filesystem::path& path, std::uint64_t max_bytes = 0);

// NumPy format 1.0 to 3.0: f2 f4 f8 i1 u1 i4 i8 b1 in either byte order, C or Fortran order.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view source);
// A zip of .npy files, stored or deflated.
NamedTensors parse_npz(std::span<const std::byte> bytes, std::string_view source, std::uint64_t max_bytes = 0);
// https://github.com/huggingface/safetensors: header at most 100 MB, no gap, no overlap, no trailing bytes.
NamedTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view source);
// Rows of numbers split by comma, semicolon, tab or blanks; '#' starts a comment at the beginning of a line or behind a
// blank or separator. A first row with names, and without a cell that begins like a number, is a header and skipped.
// Every other cell is a decimal number, nan or inf, or an error with line and column: too large for float32,
// hexadecimal, with a minus that is not ASCII. Too small ones are rounded to zero. float32 (rows, columns).
Tensor parse_csv(std::string_view text, std::string_view source);

// Writers leave `path` whole or untouched: old or new, whenever the process is killed. Links are followed, also one
// whose target is not there yet. Until it is whole the new file has no name, so that a kill leaves nothing beside it,
// with two exceptions: a file system without O_TMPFILE (FAT, NFS), and kill -9 between the two system calls that
// replace a file which is there already. Then a file named .attn-….tmp stays, which the command attn removes when it
// writes there next. Pipes, devices and "-", standard output, are written to as they are.
void save_npy(const std::filesystem::path& path, const Tensor& tensor);         // bf16 is written as f4
void save_npz(const std::filesystem::path& path, const NamedTensors& tensors);  // refuses metadata
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors);
void save_csv(const std::filesystem::path& path, const Tensor& tensor);  // rank 1 or 2
// The path's extension chooses the format: .npy, .npz, .safetensors or .csv. Throws Error (argument) for another.
void save_tensor(const std::filesystem::path& path, const Tensor& tensor);
void save_text(const std::filesystem::path& path, std::string_view text);

// The lines of a text file, as token labels are kept: "Your\njourney\n…". Line ends, '\r' too, are left out.
std::vector<std::string> load_lines(const std::filesystem::path& path);

}  // namespace attn::io
