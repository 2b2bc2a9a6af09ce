#include "io/shared_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/elements.hpp"
#include "io/npy.hpp"
#include "io/writers.hpp"

namespace attn::io {
namespace {

bool is_npy(const std::filesystem::path& path) { return format_by_name(path) == Format::npy; }

// A file of .npy has no bfloat16.
DType stored(const std::filesystem::path& path, DType dtype) {
  return is_npy(path) && dtype == DType::bf16 ? DType::f32 : dtype;
}

std::string header_of(const std::filesystem::path& path, const Shape& shape, DType dtype) {
  Shape ones = shape;
  for (std::int64_t& size : ones) size = 1;
  // This tensor has the sizes, without their memory.
  const Tensor like = shape.numel() == 0 ? Tensor::empty(shape, dtype) : Tensor::zeros(ones, dtype).expand(shape);
  if (is_npy(path)) return npy_header(like);
  if (format_by_name(path) != Format::safetensors) {
    throw Error(Error::Kind::argument, "save_tensor", "a path that ends in .npy or .safetensors, for several ranks",
                source_name(path));
  }
  NamedTensors one;
  one.tensors.emplace_back("tensor", like);
  return safetensors_start(one);
}

}  // namespace

SharedFile::SharedFile(const std::filesystem::path& path, const Shape& shape, DType dtype, std::size_t dim)
    : destination_(path, "save_tensor"), shape_(shape), dtype_(stored(path, dtype)), dim_(dim) {
  header_ = header_of(path, shape_, dtype_);
  if (destination_.is_stream()) {
    throw Error(Error::Kind::argument, "save_tensor", "a file that several ranks can write", source_name(path));
  }
  const mode_t mode = destination_.mode().value_or(kNewFile);
  file_.reset(create_temporary(own_, destination_.folder(), mode));
  temporary_name_ = own_->c_str();
  if (file_.get() < 0) destination_.fail("no way to create a file in its folder", errno);
  if (destination_.mode() && fchmod(file_.get(), mode) != 0) destination_.fail("no way to keep its permissions", errno);
  const auto size = header_.size() + static_cast<std::uint64_t>(shape_.numel()) * size_of(dtype_);
  if (ftruncate(file_.get(), static_cast<off_t>(size)) != 0) destination_.fail("no room", errno);
  write_at(0, as_bytes(header_));
}

SharedFile::SharedFile(const std::filesystem::path& path, const std::string& temporary, const Shape& shape, DType dtype,
                       std::size_t dim)
    : destination_(path, "save_tensor"),
      temporary_name_(temporary),
      shape_(shape),
      dtype_(stored(path, dtype)),
      dim_(dim) {
  header_ = header_of(path, shape_, dtype_);
  file_.reset(open(temporary.c_str(), O_WRONLY | O_CLOEXEC));
  if (file_.get() < 0) {
    throw Error(Error::Kind::file, "save_tensor", "a folder that all ranks share",
                in_quotes(temporary) + " (" + std::generic_category().message(errno) + ")",
                "write to a file system that all machines have");
  }
}

void SharedFile::write_at(std::uint64_t at, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(done)), at += static_cast<std::uint64_t>(done);
    } else if (errno != EINTR) {
      destination_.fail("a failed write", errno);
    }
  }
}

void SharedFile::write(std::span<const std::pair<std::int64_t, std::int64_t>> runs, const Tensor& rows) {
  const Tensor elements = storable(rows.to(dtype_));
  Bytes from = elements_of(elements);
  const std::int64_t all = shape_[dim_];
  std::int64_t leading = 1;
  std::uint64_t row_bytes = size_of(dtype_);
  for (std::size_t i = 0; i < dim_; ++i) leading *= shape_[i];
  for (std::size_t i = dim_ + 1; i < shape_.size(); ++i) row_bytes *= static_cast<std::uint64_t>(shape_[i]);
  for (std::int64_t i = 0; i < leading; ++i) {
    for (const auto& [first, last] : runs) {
      const auto bytes = static_cast<std::size_t>(static_cast<std::uint64_t>(last - first) * row_bytes);
      write_at(header_.size() + static_cast<std::uint64_t>(i * all + first) * row_bytes, from.first(bytes));
      from = from.subspan(bytes);
    }
  }
}

void SharedFile::finish() {
  if (fsync(file_.get()) != 0 && errno != EINVAL) destination_.fail("a failed write", errno);
}

void SharedFile::commit() {
  if (own_->rename_to(destination_.path()) != 0) destination_.fail("no way to rename the finished file", errno);
  file_.close();
}

}  // namespace attn::io
