#include "common/outputs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include "attn/error.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& flag, const fs::path& path, const std::string& why) {
  throw Error(Error::Kind::file, flag, "a file that can be written",
              formatted("{} at \"{}\"", why, printable(path.string())));
}

std::string reason(int error) { return std::generic_category().message(error); }

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return extension;
}

void check_extension(const std::string& flag, const fs::path& path, const std::vector<std::string>& extensions) {
  const std::string extension = lower_extension(path);
  if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) return;
  throw Error(Error::Kind::argument, flag, formatted("a path that ends in {}", joined(extensions, ", ")),
              formatted("\"{}\"", printable(path.string())));
}

}  // namespace

StagingFolder::StagingFolder(const std::string& flag, const fs::path& parent) {
  std::string name = (parent / ".attn-XXXXXX").string();
  if (!mkdtemp(name.data())) refuse(flag, parent, "no way to create a file (" + reason(errno) + ")");
  path_ = name;
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Outputs::declare(const std::string& flag, const std::string& given, const std::vector<std::string>& extensions) {
  if (given.empty()) return;
  Target target{flag, given, given, given == "-"};
  std::error_code failed;
  if (!target.direct) {
    check_extension(flag, given, extensions);
    const fs::file_status status = fs::status(target.path, failed);
    if (fs::is_directory(status)) refuse(flag, given, "a folder");
    if (fs::exists(status)) {
      target.direct = !fs::is_regular_file(status);
      if (access(given.c_str(), W_OK) != 0) refuse(flag, given, reason(errno));
      if (const fs::path real = fs::canonical(target.path, failed); !failed) target.path = real;
    }
    if (!target.direct) const StagingFolder probe(flag, parent_of(target.path));
  }
  for (const Target& other : targets_) {
    if (other.path == target.path) {
      throw Error(Error::Kind::argument, "outputs", "a path for each",
                  other.flag + " and " + flag + " with the same one");
    }
  }
  targets_.push_back(std::move(target));
}

bool Outputs::to_stdout() const {
  return std::any_of(targets_.begin(), targets_.end(), [](const Target& target) { return target.given == "-"; });
}

void Outputs::save(const std::vector<std::pair<std::string, Save>>& savers) {
  const auto saver_of = [&](const Target& target) -> const Save& {
    return std::find_if(savers.begin(), savers.end(), [&](const auto& s) { return s.first == target.flag; })->second;
  };
  struct Staged {
    const Target& target;
    std::unique_ptr<StagingFolder> folder;
    fs::path file;
  };
  std::vector<Staged> staged;
  for (const Target& target : targets_) {
    if (target.direct) continue;
    auto folder = std::make_unique<StagingFolder>(target.flag, parent_of(target.path));
    fs::path file = folder->path() / ("output" + lower_extension(target.path));
    saver_of(target)(file);
    staged.push_back({target, std::move(folder), std::move(file)});
  }
  for (const Target& target : targets_) {
    if (target.direct) saver_of(target)(target.given);
  }
  // Only renames are left, which need no more space.
  for (const Staged& output : staged) {
    std::error_code failed;
    const fs::file_status old = fs::status(output.target.path, failed);
    if (fs::exists(old)) fs::permissions(output.file, old.permissions(), failed);
    fs::rename(output.file, output.target.path, failed);
    if (failed) refuse(output.target.flag, output.target.path, failed.message());
  }
}

std::vector<std::string> Outputs::paths() const {
  std::vector<std::string> paths;
  for (const Target& target : targets_) paths.push_back(target.given);
  return paths;
}

}  // namespace attn::tool
