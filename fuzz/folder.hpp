// A folder of this process's own, in memory where the system has such a place, and its files.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace attn::fuzz {

class Folder {
 public:
  Folder() {
    std::string name =
        std::filesystem::is_directory("/dev/shm") ? "/dev/shm/attn-fuzz-XXXXXX" : "/tmp/attn-fuzz-XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  void write(const std::string& name, std::string_view text) const {
    write(name, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove_all(entry);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace attn::fuzz
