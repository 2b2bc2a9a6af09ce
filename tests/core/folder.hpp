// A folder of the test's own, which is deleted with it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace attn::test {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("attn-test-folder-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  operator const std::filesystem::path&() const { return path_; }  // NOLINT
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace attn::test
