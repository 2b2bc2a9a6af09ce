// Files on their way out: refused early when they cannot be written, and all or none of them changed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace attn::tool {

// A fresh folder beside a target, so that its content can be renamed into place; gone with the object.
class StagingFolder {
 public:
  // Throws Error (file) when `parent` takes no new files.
  StagingFolder(const std::string& flag, const std::filesystem::path& parent);
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  ~StagingFolder();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

class Outputs {
 public:
  using Save = std::function<void(const std::filesystem::path&)>;

  // Declares an output before any work is done; an empty path is none. Throws Error when its extension is
  // not among `extensions`, it cannot be written, or another output has the same path.
  void declare(const std::string& flag, const std::string& path, const std::vector<std::string>& extensions);
  bool to_stdout() const;

  // Writes all declared outputs aside, each by its flag's function, then puts all of them in place.
  void save(const std::vector<std::pair<std::string, Save>>& savers);
  // Paths written, in the order of declaration.
  std::vector<std::string> paths() const;

 private:
  struct Target {
    std::string flag, given;
    std::filesystem::path path;  // links resolved
    bool direct = false;         // standard output or a device: nothing to rename
  };
  std::vector<Target> targets_;
};

}  // namespace attn::tool
