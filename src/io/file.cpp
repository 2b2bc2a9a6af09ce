#include "io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "attn/error.hpp"
#include "core/escape.hpp"
#include "core/memory.hpp"

namespace attn::io {
namespace {

// Thread-safe, unlike strerror.
std::string reason(int error) { return std::generic_category().message(error); }

struct Input {
  const std::filesystem::path& path;
  std::string_view op;
  std::size_t most;

  [[noreturn]] void fail(std::string_view expected, const std::string& found, std::string_view hint = {}) const {
    throw Error(Error::Kind::file, op, expected, found + " at " + source_name(path), hint);
  }
  [[noreturn]] void missing() const {
    throw Error(Error::Kind::file, op, "a file to read", "no file " + source_name(path));
  }
  [[noreturn]] void too_big() const {
    const bool memory = most == most_file_bytes();
    fail("at most " + std::string(memory ? "half of the machine's memory, " : "") + std::to_string(most) + " bytes",
         "more");
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
  if (static_cast<std::size_t>(info.st_size) > input.most) input.too_big();
  return static_cast<std::size_t>(info.st_size);
}

int open_to_read(const Input& input) {
  if (has_zero_byte(input.path)) input.fail("a file to read", "a zero byte in the name");
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  const int fd = open(input.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) input.missing();
  if (fd < 0) input.fail("a file to read", reason(errno));
  return fd;
}

Buffer read_all(int fd, std::size_t expected_size, const Input& input) {
  Buffer buffer(expected_size + 1);  // one more, to see the end of the file without growing
  for (;;) {
    if (buffer.unused().empty()) {
      buffer.grow();
    }
    const auto space = buffer.unused();
    const ssize_t got = read(fd, space.data(), space.size());
    if (got == 0) return buffer;
    if (got > 0) buffer.use(static_cast<std::size_t>(got));
    if (buffer.bytes().size() > input.most) input.too_big();
    if (got < 0 && errno != EINTR) input.fail("a readable file", reason(errno));
  }
}

}  // namespace

Buffer::Buffer(std::size_t capacity) : data_(new (std::nothrow) std::byte[capacity]), capacity_(capacity) {
  if (!data_) throw OutOfMemory(capacity, "a file's bytes");
}

void Buffer::grow() {
  Buffer larger(std::max<std::size_t>(2 * capacity_, std::size_t{1} << 16));
  if (size_ != 0) std::memcpy(larger.data_.get(), data_.get(), size_);
  larger.size_ = size_;
  *this = std::move(larger);
}

std::string source_name(const std::filesystem::path& path) {
  return path == "-" ? "standard input" : '"' + escaped(path.native()) + '"';
}

std::size_t most_file_bytes() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max() / 2;
  return pages <= 0 || page <= 0 ? unknown : static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 2;
}

Buffer read_file(const std::filesystem::path& path, std::string_view op, std::size_t most) {
  const Input input{path, op, most};
  constexpr std::size_t stream_start = std::size_t{1} << 16;
  if (path == "-") return read_all(STDIN_FILENO, stream_start, input);
  const Descriptor file(open_to_read(input));
  return read_all(file.get(), check_regular(file.get(), input), input);
}

RandomAccessFile::RandomAccessFile(const std::filesystem::path& path, std::string_view op)
    : path_(path), op_(op), source_(source_name(path)) {
  const Input input{path_, op_, std::numeric_limits<std::size_t>::max()};
  file_.reset(open_to_read(input));
  size_ = check_regular(file_.get(), input);
}

Bytes RandomAccessFile::read(std::uint64_t begin, std::size_t count, Buffer& buffer) const {
  if (!is_open()) return memory_.subspan(static_cast<std::size_t>(begin), count);
  buffer = Buffer(count);
  read(begin, buffer.unused().first(count));
  buffer.use(count);
  return buffer.bytes();
}

void RandomAccessFile::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (!is_open()) {
    std::ranges::copy(memory_.subspan(static_cast<std::size_t>(begin), out.size()), out.begin());
    return;
  }
  const Input input{path_, op_, std::numeric_limits<std::size_t>::max()};
  while (!out.empty()) {
    const ssize_t got = pread(file_.get(), out.data(), out.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) input.fail("a readable file", reason(errno));
    if (got == 0) input.fail(std::to_string(out.size()) + " bytes more", "a file that has become shorter");
    begin += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
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

}  // namespace attn::io
