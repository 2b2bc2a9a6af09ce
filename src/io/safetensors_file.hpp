// A safetensors file whose elements are read when they are asked for, and no more of them at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/file.hpp"
#include "io/safetensors_header.hpp"

namespace attn::io {

class SafetensorsFile {
 public:
  // Throws Error: kind `file` when it cannot be read, kind `data` when its header does not fit its bytes.
  explicit SafetensorsFile(const std::filesystem::path& path);
  explicit SafetensorsFile(std::shared_ptr<const RandomAccessFile> file);

  const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }  // by their place
  const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }
  const std::string& source() const noexcept { return file_->source(); }  // for messages
  Tensor load(const SafetensorsEntry& entry) const;
  std::uint64_t offset_of(const SafetensorsEntry& entry) const noexcept { return data_ + entry.begin; }

 private:
  std::shared_ptr<const RandomAccessFile> file_;
  SafetensorsHeader header_;
  std::uint64_t data_ = 0;  // where the elements begin
};

}  // namespace attn::io
