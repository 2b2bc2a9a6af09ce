// A name for a file that is not yet what its own name promises.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

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
  const std::filesystem::path& path() const noexcept { return path_; }
  // rename(2); 0, or -1 with errno.
  int rename_to(const std::filesystem::path& path) noexcept;

 private:
  void forget() noexcept;

  std::filesystem::path path_;
  int slot_ = -1;
};

// Makes a file in the folder, for writing, with a name and a mark as below. A descriptor, or -1 with errno.
int create_temporary(std::optional<TemporaryName>& name, const std::filesystem::path& folder, mode_t mode);

// Marks an open file or folder, which a TemporaryName names or is about to, as that of a living process, for as long as
// it is open. The system takes the mark (flock) away with the process.
void mark_living(int fd) noexcept;
// Whether the open file still has a name: remove_abandoned() of another process may have come before the mark.
bool is_named(int fd) noexcept;
// Removes what killed processes have left in the folder: files and folders with a TemporaryName and without a mark.
// Where the file system has no locks nothing is removed.
void remove_abandoned(const std::filesystem::path& folder) noexcept;

// Unlinks every file that a TemporaryName of this process names now. Safe in a signal handler: for one that ends the
// process.
void remove_temporary_files() noexcept;

}  // namespace attn::io
