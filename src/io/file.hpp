// Whole files in and out of memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "io/bytes.hpp"

namespace attn::io {

// A file's bytes, left uninitialised until read into.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t capacity) : data_(new std::byte[capacity]), capacity_(capacity) {}

  std::span<std::byte> unused() noexcept { return {data_.get() + size_, capacity_ - size_}; }
  void use(std::size_t bytes) noexcept { size_ += bytes; }
  void grow();  // doubles the capacity
  Bytes bytes() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0, size_ = 0;
};

// "-" is standard input. Throws Error (file) for a folder, a pipe or device, a missing file, and for more
// bytes than half of the machine's memory (the tensors need the other half).
Buffer read_file(const std::filesystem::path& path, std::string_view op);

// How the path is called in messages: quoted, or "standard input".
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

// Writes a file that is whole or untouched: the bytes go to a temporary file beside it, without a name where the file
// system has such; commit() renames that over it, and without a commit() the temporary is gone. "-" is standard output;
// a device or a pipe is written to directly. Throws Error (file) with the system's reason.
class OutputFile {
 public:
  OutputFile(const std::filesystem::path& path, std::string_view op);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(Bytes bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  void commit();

 private:
  void create_temporary(mode_t mode, bool keep_mode);
  void each_temporary_name(const std::function<bool(const std::string&)>& create);  // until it could
  std::filesystem::path folder() const;
  [[noreturn]] void fail(std::string_view what, int error) const;

  std::filesystem::path path_;
  std::string op_;
  std::filesystem::path temporary_;  // empty: written to directly, without a name, or committed
  bool nameless_ = false;
  Descriptor file_;
};

}  // namespace attn::io
