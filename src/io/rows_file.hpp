// Some rows of the one tensor in a file, without the others: of files that are larger than the memory.
#pragma once

#include <bit>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "attn/tensor.hpp"
#include "io/file.hpp"

namespace attn::io {

class RowsFile {
 public:
  using Run = std::pair<std::int64_t, std::int64_t>;  // from the first row up to the last, without that

  // .npy and safetensors are read by rows. A .npy in Fortran order, and every other format that load_tensor() takes, is
  // read whole. Throws Error as load_tensor() does, and kind `shape` for a tensor without rows.
  explicit RowsFile(const std::filesystem::path& path, std::uint64_t max_bytes = 0);

  const Shape& shape() const noexcept { return shape_; }
  DType dtype() const noexcept { return dtype_; }
  std::int64_t rows() const noexcept { return shape_[shape_.size() - 2]; }
  // Those rows of the last but one dimension, one run after the other.
  Tensor load(std::span<const Run> runs) const;

 private:
  bool find_npy(const std::filesystem::path& path);
  bool find_safetensors();

  std::shared_ptr<const RandomAccessFile> file_;
  Shape shape_;
  DType dtype_ = DType::f32;
  std::endian order_ = std::endian::little;
  std::uint64_t offset_ = 0;  // where the elements begin
  Tensor whole_;              // of a file that is not read by rows
};

}  // namespace attn::io
