// Files on their way out: whole or untouched.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "attn/error.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/temporary_name.hpp"

namespace attn::io {

constexpr mode_t kNewFile = 0666, kModeBits = 07777;  // what the umask takes from; of what is replaced

// Nobody reads what is written: the reader of the pipe has gone.
struct ClosedPipe : Error {
  using Error::Error;
};

// Where a path leads for a writer. "-" and "/dev/stdout" are standard output; links are followed, also one whose target
// is not there yet. Throws Error (file) for what cannot be written: a folder, a read-only file, a missing folder.
class Destination {
 public:
  Destination(const std::filesystem::path& path, std::string_view op);

  // Whether both end in one file, by whatever names.
  bool same_as(const Destination& other) const noexcept;
  // A pipe, a device, a descriptor or standard output: written to directly. Else a file, which is replaced whole.
  bool is_stream() const noexcept { return stream_; }
  bool is_standard_output() const noexcept;
  const std::filesystem::path& path() const noexcept { return path_; }  // of a file: without links
  std::optional<mode_t> mode() const noexcept { return mode_; }         // of the file that is there
  std::filesystem::path folder() const;

  // Throws Error (file), or ClosedPipe, with what failed, where, and the system's reason.
  [[noreturn]] void fail(std::string_view what, int error) const;

 private:
  void follow_dangling_links();

  std::filesystem::path given_, path_;
  std::string op_;
  bool stream_ = false;
  std::optional<mode_t> mode_;
  std::optional<std::pair<dev_t, ino_t>> identity_;  // of what is there
};

// The bytes go to a file without a name, or, where the file system has no such thing, with a TemporaryName; commit()
// gives it its own. Without a commit() nothing has happened. Where a file has to be replaced, the new one, whole, has a
// TemporaryName between two system calls, as Linux cannot link over a file: a kill -9 just there leaves it to
// remove_abandoned().
class OutputFile {
 public:
  OutputFile(const std::filesystem::path& path, std::string_view op) : OutputFile(Destination(path, op)) {}
  explicit OutputFile(Destination destination);

  void write(Bytes bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  // The file is whole and on the disk, without its name: commit() then needs no more space.
  void finish();
  void commit();  // finishes first

 private:
  void create_temporary();
  void name_it();

  Destination destination_;
  std::optional<TemporaryName> temporary_;  // none: a stream, or a file without a name
  bool finished_ = false;
  Descriptor file_;
};

}  // namespace attn::io
