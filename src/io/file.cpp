#include "io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "attn/error.hpp"

namespace attn::io {
namespace {

// Thread-safe, unlike strerror.
std::string reason(int error) { return std::generic_category().message(error); }

std::size_t memory_limit() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  constexpr std::size_t unknown = std::size_t{1} << 33;
  return pages <= 0 || page <= 0 ? unknown : static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 2;
}

struct Input {
  const std::filesystem::path& path;
  std::string_view op;

  [[noreturn]] void fail(std::string_view expected, const std::string& found, std::string_view hint = {}) const {
    throw Error(Error::Kind::file, op, expected, found + " at " + source_name(path), hint);
  }
  [[noreturn]] void too_big() const {
    fail("at most half of the machine's memory, " + std::to_string(memory_limit()) + " bytes", "more");
  }
};

// The size of a regular file.
std::size_t check_regular(int fd, const Input& input) {
  struct stat info {};
  if (fstat(fd, &info) != 0) input.fail("a file to read", reason(errno));
  if (S_ISDIR(info.st_mode)) input.fail("a file to read", "a folder");
  if (!S_ISREG(info.st_mode)) {
    input.fail("a regular file to read", "a pipe or device", "redirect it to standard input and pass -");
  }
  if (static_cast<std::size_t>(info.st_size) > memory_limit()) input.too_big();
  return static_cast<std::size_t>(info.st_size);
}

Buffer read_all(int fd, std::size_t expected_size, const Input& input) {
  Buffer buffer(expected_size + 1);  // one more, to see the end of the file without growing
  for (;;) {
    if (buffer.unused().empty()) {
      if (buffer.bytes().size() > memory_limit()) input.too_big();
      buffer.grow();
    }
    const auto space = buffer.unused();
    const ssize_t got = read(fd, space.data(), space.size());
    if (got == 0) return buffer;
    if (got > 0) buffer.use(static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) input.fail("a readable file", reason(errno));
  }
}

// Not "/dev/stdout" itself: opened anew it would start at offset 0 of a file that is being appended to.
bool is_standard_output(const std::filesystem::path& path) { return path == "-" || path == "/dev/stdout"; }

bool names_descriptor(const std::filesystem::path& path) {
  const std::string& name = path.native();
  return name == "/dev/stderr" || name.starts_with("/dev/fd/") || name.starts_with("/proc/");
}

// By which an open file gets a name.
std::string link_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// -1 where there is no such thing.
int open_nameless([[maybe_unused]] const std::filesystem::path& folder, [[maybe_unused]] mode_t mode) {
#if defined(O_TMPFILE)
  const int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd < 0 || access(link_of(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
#endif
  return -1;
}

}  // namespace

void Buffer::grow() {
  Buffer larger(std::max<std::size_t>(2 * capacity_, std::size_t{1} << 16));
  if (size_ != 0) std::memcpy(larger.data_.get(), data_.get(), size_);
  larger.size_ = size_;
  *this = std::move(larger);
}

std::string source_name(const std::filesystem::path& path) {
  return path == "-" ? "standard input" : in_quotes(path.native());
}

Buffer read_file(const std::filesystem::path& path, std::string_view op) {
  const Input input{path, op};
  constexpr std::size_t stream_start = std::size_t{1} << 16;
  if (path == "-") return read_all(STDIN_FILENO, stream_start, input);
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) input.fail("a file to read", reason(errno));
  return read_all(file.get(), check_regular(file.get(), input), input);
}

void Descriptor::reset(int fd, bool owned) noexcept {
  close();
  fd_ = fd;
  owned_ = owned;
}

int Descriptor::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && owned_ ? ::close(fd) : 0;
}

OutputFile::OutputFile(const std::filesystem::path& path, std::string_view op) : path_(path), op_(op) {
  if (is_standard_output(path)) {
    file_.reset(STDOUT_FILENO, false);
    return;
  }
  if (path.empty()) fail("an empty path", 0);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) fail("no access", errno);
    if (!path.has_filename()) fail("a folder", EISDIR);
    create_temporary(0666, false);
    return;
  }
  if (S_ISDIR(info.st_mode)) fail("a folder", EISDIR);
  if (!S_ISREG(info.st_mode) || names_descriptor(path)) {
    file_.reset(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file_.get() < 0) fail("no access", errno);
    return;
  }
  // Renaming needs no right to the file itself; a read-only one asks to be left alone.
  if (access(path.c_str(), W_OK) != 0) fail("no access", errno);
  std::error_code ignored;
  const auto real = std::filesystem::canonical(path, ignored);  // a link stays a link
  if (!real.empty()) path_ = real;
  create_temporary(info.st_mode & 07777, true);
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

// Without a name where the file system can do that: nothing is left behind when the process is killed.
void OutputFile::create_temporary(mode_t mode, bool keep_mode) {
  if (const int fd = open_nameless(folder(), mode); fd >= 0) {
    file_.reset(fd);
    nameless_ = true;
  } else {
    each_temporary_name([&](const std::string& name) {
      file_.reset(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
      return file_.get() >= 0;
    });
  }
  if (!keep_mode || fchmod(file_.get(), mode) == 0) return;
  const int error = errno;
  if (!temporary_.empty()) unlink(temporary_.c_str());  // the destructor does not run when the constructor throws
  fail("no way to keep its permissions", error);
}

std::filesystem::path OutputFile::folder() const { return path_.has_parent_path() ? path_.parent_path() : "."; }

void OutputFile::each_temporary_name(const std::function<bool(const std::string&)>& create) {
  static std::atomic<unsigned> counter{0};
  const std::string prefix = ".attn-" + std::to_string(getpid()) + "-";
  constexpr int attempts = 1000;  // leftovers of a killed process with our id
  for (int i = 0; i < attempts; ++i) {
    const auto candidate = path_.parent_path() / (prefix + std::to_string(counter++) + ".tmp");
    if (create(candidate.native())) {
      temporary_ = candidate;
      return;
    }
    if (errno != EEXIST) fail("no way to create a file in its folder", errno);
  }
  fail("no free temporary name in its folder", EEXIST);
}

void OutputFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file_.get(), bytes.data(), bytes.size());
    if (done >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    } else if (errno != EINTR) {
      fail("a failed write", errno);
    }
  }
}

void OutputFile::commit() {
  if (temporary_.empty() && !nameless_) {
    if (file_.close() != 0) fail("a failed write", errno);
    return;
  }
  // Some file systems have no fsync; they say EINVAL.
  if (fsync(file_.get()) != 0 && errno != EINVAL) fail("a failed write", errno);
  if (nameless_) {
    const std::string link = link_of(file_.get());
    each_temporary_name([&](const std::string& name) {
      return linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    });
  }
  if (file_.close() != 0) fail("a failed write", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("no way to rename the finished file", errno);
  temporary_.clear();
}

void OutputFile::fail(std::string_view what, int error) const {
  std::string found(what);
  found.append(" at ").append(path_ == "-" ? "standard output" : in_quotes(path_.native()));
  if (error != 0) found.append(" (").append(reason(error)).append(")");
  throw Error(Error::Kind::file, op_, "a file that can be written", found);
}

}  // namespace attn::io
