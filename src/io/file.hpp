// Whole files into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "io/bytes.hpp"

namespace attn::io {

// A file's bytes, left uninitialised until read into.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t capacity);  // throws std::bad_alloc

  std::span<std::byte> unused() noexcept { return {data_.get() + size_, capacity_ - size_}; }
  void use(std::size_t bytes) noexcept { size_ += bytes; }
  void grow();  // doubles the capacity
  Bytes bytes() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0, size_ = 0;
};

// Half of the machine's memory: the tensors need the other half.
std::size_t most_file_bytes() noexcept;

// "-" is standard input. Throws Error (file) for a folder, a pipe or device, a missing file, and for more than `most`
// bytes, of which no more are read.
Buffer read_file(const std::filesystem::path& path, std::string_view op, std::size_t most = most_file_bytes());

// Whether a path has a zero byte, at which the system would take it for ended.
inline bool has_zero_byte(const std::filesystem::path& path) {
  return path.native().find('\0') != std::filesystem::path::string_type::npos;
}

// How the path is called in messages: quoted and whole, or "standard input".
std::string source_name(const std::filesystem::path& path);

// A closed-on-destruction file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1, bool owned = true) noexcept : fd_(fd), owned_(owned) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  void reset(int fd, bool owned = true) noexcept;
  int close() noexcept;  // 0, or -1 with errno
  int get() const noexcept { return fd_; }

 private:
  int fd_;
  bool owned_;
};

// A regular file, of which a part is read at a time, or bytes that the caller keeps; by default none is open.
class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(const std::filesystem::path& path, std::string_view op);  // throws Error (file), as read_file() does
  RandomAccessFile(Bytes memory, std::string_view source) : source_(source), memory_(memory), size_(memory.size()) {}

  bool is_open() const noexcept { return file_.get() >= 0; }
  const std::string& source() const noexcept { return source_; }  // for messages
  std::uint64_t size() const noexcept { return size_; }
  // The bytes [begin, begin + count), which are there unless the file has become shorter; in `buffer` where need be.
  Bytes read(std::uint64_t begin, std::size_t count, Buffer& buffer) const;
  // Fills `out` with the bytes from `begin` on. Throws Error (file) where they are not there, or cannot be read.
  void read(std::uint64_t begin, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::string op_, source_;
  Descriptor file_;
  Bytes memory_;
  std::uint64_t size_ = 0;
};

}  // namespace attn::io
