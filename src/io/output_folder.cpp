#include "io/output_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "attn/error.hpp"
#include "io/output_file.hpp"

namespace attn::io {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kNewFolder = 0777;

// 0, or -1 with errno.
int exchange([[maybe_unused]] const char* one, [[maybe_unused]] const char* other) {
#if defined(RENAME_EXCHANGE)
  return renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
#else
  errno = ENOTSUP;
  return -1;
#endif
}

}  // namespace

fs::path place_of_folder(const fs::path& path) {
  std::error_code failed;
  if (fs::path real = fs::canonical(path, failed); !failed) return real;
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  const fs::path parent = fs::canonical(plain.has_parent_path() ? plain.parent_path() : ".", failed);
  return failed ? plain : parent / plain.filename();
}

OutputFolder::OutputFolder(const fs::path& path, std::string op)
    : given_(path), target_(place_of_folder(path)), op_(std::move(op)) {
  struct stat old {};
  const bool there = stat(target_.c_str(), &old) == 0;
  if (there && !S_ISDIR(old.st_mode)) fail("a file", EEXIST);
  do {
    temporary_.emplace(target_.parent_path());
    if (mkdir(temporary_->c_str(), kNewFolder) != 0) fail("no way to create it", errno);
    folder_.reset(open(temporary_->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_.get() < 0 && errno != ENOENT) fail("no access", errno);
    mark_living(folder_.get());
  } while (folder_.get() < 0 || !is_named(folder_.get()));
  if (there && fchmod(folder_.get(), old.st_mode & kModeBits) != 0) fail("no way to keep its permissions", errno);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (temporary_) fs::remove_all(path(), ignored);
}

void OutputFolder::commit() {
  if (fsync(folder_.get()) != 0 && errno != EINVAL) fail("a failed write", errno);
  // This replaces an empty folder, too.
  if (temporary_->rename_to(target_) == 0) return temporary_.reset();
  if (errno != ENOTEMPTY && errno != EEXIST) fail("no way to give it its name", errno);
  if (exchange(temporary_->c_str(), target_.c_str()) != 0) fail("no way to exchange it for the old one", errno);
  std::error_code ignored;
  fs::remove_all(path(), ignored);
  temporary_.reset();
}

void OutputFolder::fail(const char* what, int error) const {
  if (temporary_) rmdir(temporary_->c_str());  // of a constructor that fails; an errno of its own is in `error`
  throw Error(
      Error::Kind::file, op_, "a folder to write into",
      std::string(what) + " at " + in_quotes(given_.native()) + " (" + std::generic_category().message(error) + ")",
      "name one that is not there yet, in a folder that can be written to");
}

}  // namespace attn::io
