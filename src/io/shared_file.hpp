// A file that several processes write together, each its own rows: it is whole, or as it was before.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "attn/tensor.hpp"
#include "io/output_file.hpp"

namespace attn::io {

// One tensor of a shape, in the format that the name asks for: .npy or .safetensors. One process makes the file, the
// others open it by the name that it has until it is whole, and each writes rows. When all have finished, the first
// one commits. Without a commit() the file is removed with the object that made it.
class SharedFile {
 public:
  // Makes it. Throws Error (file), and kind `argument` for another format or a stream.
  SharedFile(const std::filesystem::path& path, const Shape& shape, DType dtype, std::size_t dim);
  // Opens what another process made. Throws Error (file) where this one does not see it.
  SharedFile(const std::filesystem::path& path, const std::string& temporary, const Shape& shape, DType dtype,
             std::size_t dim);

  std::string temporary() const { return temporary_name_; }
  // `rows` are those runs of the dimension, one after the other.
  void write(std::span<const std::pair<std::int64_t, std::int64_t>> runs, const Tensor& rows);
  void finish();  // what was written is on the disk
  void commit();

 private:
  void write_at(std::uint64_t at, Bytes bytes);

  Destination destination_;
  std::string temporary_name_;
  std::optional<TemporaryName> own_;  // of the process that made it
  Shape shape_;
  DType dtype_;
  std::size_t dim_;
  std::string header_;
  Descriptor file_;
};

}  // namespace attn::io
