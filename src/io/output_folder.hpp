// A folder on its way out: all of its files at once, or nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "io/file.hpp"
#include "io/temporary_name.hpp"

namespace attn::io {

// A new folder beside `path`, with a TemporaryName, for files that belong together. commit() puts it in the place of
// `path`, which may be there or not: a reader finds the old folder or the new one, and never some of each. Without a
// commit() nothing has happened.
class OutputFolder {
 public:
  // Throws Error (file) where no folder can be made.
  OutputFolder(const std::filesystem::path& path, std::string op);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  const std::filesystem::path& path() const noexcept { return temporary_->path(); }  // where the files are written
  // Removes the old folder. Throws Error (file) where the system cannot exchange two folders in one step.
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path given_, target_;
  std::string op_;
  std::optional<TemporaryName> temporary_;
  Descriptor folder_;
};

// The folder's own place, without links and without a slash at the end; it need not be there, but its parent does.
std::filesystem::path place_of_folder(const std::filesystem::path& path);

}  // namespace attn::io
