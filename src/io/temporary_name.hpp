// A name for a file that is not yet what its own name promises.
#pragma once

#include <filesystem>

namespace attn::io {

// A random name in a folder, beginning with ".attn-". The file that it names is unlinked at the end of this object, and
// by remove_temporary_files(), unless it has been renamed.
class TemporaryName {
 public:
  explicit TemporaryName(const std::filesystem::path& folder);
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName();

  const char* c_str() const noexcept { return path_.c_str(); }
  // rename(2); 0, or -1 with errno.
  int rename_to(const std::filesystem::path& path) noexcept;

 private:
  void forget() noexcept;

  std::filesystem::path path_;
  int slot_ = -1;
};

// Unlinks every file that a TemporaryName of this process names now. Safe in a signal handler: for one that ends the
// process.
void remove_temporary_files() noexcept;

}  // namespace attn::io
