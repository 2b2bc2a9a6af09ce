#include "io/rows_file.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/elements.hpp"
#include "io/npy.hpp"
#include "io/safetensors_file.hpp"

namespace attn::io {

RowsFile::RowsFile(const std::filesystem::path& path, std::uint64_t max_bytes) {
  if (path == "-" || !(find_npy(path) || find_safetensors())) {
    whole_ = load_tensor(path, {}, max_bytes);
    shape_ = whole_.shape(), dtype_ = whole_.dtype();
  }
  if (shape_.size() < 2)
    throw Error(Error::Kind::shape, "load", "rows in " + source_name(path) + ": (…, t, d)", shape_.str());
}

bool RowsFile::find_npy(const std::filesystem::path& path) {
  file_ = std::make_shared<RandomAccessFile>(path, "load_npy");
  Buffer first(std::min<std::size_t>(file_->size(), kMaxNpyHeader));
  file_->read(0, first.unused());
  first.use(first.unused().size());
  if (!as_text(first.bytes()).starts_with(kNpyMagic)) return false;
  const std::string source = source_name(path);
  const Origin origin{"load_npy", source};
  const NpyHeader header = parse_npy_header(first.bytes(), origin);
  if (header.fortran) return false;
  if (file_->size() - header.offset != header.extent.bytes) {
    origin.fail(std::to_string(header.extent.bytes) + " bytes for the elements of " + header.extent.shape.str(),
                std::to_string(file_->size() - header.offset) + " bytes");
  }
  shape_ = header.extent.shape, dtype_ = header.dtype, order_ = header.order, offset_ = header.offset;
  return true;
}

bool RowsFile::find_safetensors() {
  constexpr std::size_t brace = kSafetensorsLengthBytes;
  std::array<std::byte, brace + 1> first{};
  if (file_->size() < first.size()) return false;
  file_->read(0, first);
  if (first[brace - 1] != std::byte{0} || first[brace] != std::byte{'{'}) return false;
  const SafetensorsFile file(file_);
  if (file.entries().size() != 1) return false;  // load_tensor() says what it lacks
  const SafetensorsEntry& entry = file.entries().front();
  shape_ = entry.extent.shape, dtype_ = entry.dtype, offset_ = file.offset_of(entry);
  return true;
}

Tensor RowsFile::load(std::span<const Run> runs) const {
  std::int64_t rows = 0, leading = 1;
  for (const auto& [first, last] : runs) rows += last - first;
  for (std::size_t i = 0; i + 2 < shape_.size(); ++i) leading *= shape_[i];
  Shape shape = shape_;
  shape[shape.size() - 2] = rows;
  const Tensor tensor = Tensor::empty(shape, dtype_);
  if (whole_.defined()) {
    std::int64_t at = 0;
    for (const auto& [first, last] : runs) {
      tensor.slice(-2, at, at + last - first).copy_from(whole_.slice(-2, first, last));
      at += last - first;
    }
    return tensor;
  }
  const auto row_bytes = static_cast<std::uint64_t>(shape_[shape_.size() - 1]) * size_of(dtype_);
  std::span<std::byte> to = elements_of(tensor);
  for (std::int64_t i = 0; i < leading; ++i) {
    for (const auto& [first, last] : runs) {
      const auto bytes = static_cast<std::size_t>(static_cast<std::uint64_t>(last - first) * row_bytes);
      file_->read(offset_ + static_cast<std::uint64_t>(i * this->rows() + first) * row_bytes, to.first(bytes));
      to = to.subspan(bytes);
    }
  }
  make_native(elements_of(tensor), dtype_, order_);
  return tensor;
}

}  // namespace attn::io
