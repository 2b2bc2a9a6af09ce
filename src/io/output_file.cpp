#include "io/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace attn::io {
namespace {

namespace fs = std::filesystem;

// Not "/dev/stdout" itself: opened anew it would start at offset 0 of a file that is being appended to.
bool names_standard_output(const fs::path& path) { return path == "-" || path == "/dev/stdout"; }

bool names_descriptor(const fs::path& path) {
  const std::string& name = path.native();
  return name == "/dev/stderr" || name.starts_with("/dev/fd/") || name.starts_with("/proc/");
}

// By which an open file gets a name.
std::string link_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// -1 where there is no such thing.
int open_nameless([[maybe_unused]] const fs::path& folder, [[maybe_unused]] mode_t mode) {
#if defined(O_TMPFILE)
  const int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd < 0 || access(link_of(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
#endif
  return -1;
}

bool link_to(int fd, const char* name) {
  return linkat(AT_FDCWD, link_of(fd).c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

Destination::Destination(const fs::path& path, std::string_view op) : given_(path), path_(path), op_(op) {
  struct stat info {};
  if (names_standard_output(path)) {
    stream_ = true;
    if (fstat(STDOUT_FILENO, &info) == 0) identity_.emplace(info.st_dev, info.st_ino);
    return;
  }
  if (path.empty()) fail("an empty path", 0);
  if (has_zero_byte(path)) fail("a zero byte in the name", 0);
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) fail("no access", errno);
    follow_dangling_links();
    if (!path_.has_filename()) fail("a folder", EISDIR);
    std::error_code failed;
    const fs::path parent = fs::canonical(folder(), failed);
    if (failed) fail("no way to create a file", failed.value());
    path_ = parent / path_.filename();
    return;
  }
  if (S_ISDIR(info.st_mode)) fail("a folder", EISDIR);
  // Renaming needs no right to the file itself; a read-only one asks to be left alone.
  if (access(path.c_str(), W_OK) != 0) fail("no access", errno);
  identity_.emplace(info.st_dev, info.st_ino);
  stream_ = !S_ISREG(info.st_mode) || names_descriptor(path);
  if (stream_) return;
  mode_ = info.st_mode & kModeBits;
  std::error_code ignored;
  if (const fs::path real = fs::canonical(path, ignored); !real.empty()) path_ = real;  // a link stays a link
}

// A circle of links is none of these: stat() has refused it.
void Destination::follow_dangling_links() {
  for (std::error_code none; fs::is_symlink(fs::symlink_status(path_, none));) {
    const fs::path target = fs::read_symlink(path_, none);
    if (none || target.empty()) return;
    path_ = folder() / target;
  }
}

bool Destination::is_standard_output() const noexcept { return names_standard_output(given_); }

bool Destination::same_as(const Destination& other) const noexcept {
  const bool same_file = identity_ && identity_ == other.identity_;
  return same_file || (!stream_ && !other.stream_ && path_ == other.path_);
}

fs::path Destination::folder() const { return path_.has_parent_path() ? path_.parent_path() : "."; }

void Destination::fail(std::string_view what, int error) const {
  std::string found(what);
  found.append(" at ").append(given_ == "-" ? "standard output" : in_quotes(given_.native()));
  if (error != 0) found.append(" (").append(std::generic_category().message(error)).append(")");
  constexpr std::string_view expected = "a file that can be written";
  if (error == EPIPE) throw ClosedPipe(Error::Kind::file, op_, expected, found);
  throw Error(Error::Kind::file, op_, expected, found);
}

OutputFile::OutputFile(Destination destination) : destination_(std::move(destination)) {
  if (destination_.is_standard_output()) {
    file_.reset(STDOUT_FILENO, false);
  } else if (destination_.is_stream()) {
    file_.reset(open(destination_.path().c_str(), O_WRONLY | O_CLOEXEC));
    if (file_.get() < 0) destination_.fail("no access", errno);
  } else {
    create_temporary();
  }
}

void OutputFile::create_temporary() {
  const mode_t mode = destination_.mode().value_or(kNewFile);
  file_.reset(open_nameless(destination_.folder(), mode));
  mark_living(file_.get());
  if (file_.get() < 0) file_.reset(io::create_temporary(temporary_, destination_.folder(), mode));
  if (file_.get() < 0) destination_.fail("no way to create a file in its folder", errno);
  // open() has taken the umask's bits away.
  if (destination_.mode() && fchmod(file_.get(), mode) != 0) destination_.fail("no way to keep its permissions", errno);
}

void OutputFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file_.get(), bytes.data(), bytes.size());
    if (done >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    } else if (errno != EINTR) {
      destination_.fail("a failed write", errno);
    }
  }
}

void OutputFile::finish() {
  if (finished_) return;
  if (destination_.is_stream()) {
    if (file_.close() != 0) destination_.fail("a failed write", errno);
  } else if (fsync(file_.get()) != 0 && errno != EINVAL) {  // some file systems have no fsync
    destination_.fail("a failed write", errno);
  }
  finished_ = true;
}

void OutputFile::commit() {
  finish();
  if (!destination_.is_stream()) name_it();
}

void OutputFile::name_it() {
  // A new file gets its name at once.
  if (!temporary_ && !destination_.mode() && link_to(file_.get(), destination_.path().c_str())) {
    file_.close();
    return;
  }
  if (!temporary_) {
    temporary_.emplace(destination_.folder());
    if (!link_to(file_.get(), temporary_->c_str())) destination_.fail("no way to create a file in its folder", errno);
  }
  // The file stays open, and so marked, until it has its name; finish() has told of every write that failed.
  if (temporary_->rename_to(destination_.path()) != 0) destination_.fail("no way to rename the finished file", errno);
  file_.close();
}

}  // namespace attn::io
