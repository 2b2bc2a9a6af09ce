#include "common/outputs.hpp"

#include <algorithm>
#include <filesystem>
#include <list>

#include "common/format.hpp"
#include "common/options.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

void check_extension(const std::string& flag, const std::filesystem::path& path,
                     const std::vector<std::string>& extensions) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) return;
  refuse(flag, formatted("a path that ends in {}", joined(extensions, ", ")), formatted("\"{}\"", path.string()));
}

}  // namespace

void Outputs::declare(const std::string& flag, const std::string& given, const std::vector<std::string>& extensions) {
  if (given.empty()) return;
  if (given != "-") check_extension(flag, given, extensions);
  const io::Destination destination(given, flag);
  for (const Target& other : targets_) {
    if (!destination.same_as(other.destination)) continue;
    refuse("outputs", "a file for each",
           formatted("{} \"{}\" and {} \"{}\", which are the same one", other.flag, other.given, flag, given));
  }
  if (!destination.is_stream()) {
    const io::OutputFile probe(destination);  // that its folder takes files
    io::remove_abandoned(destination.folder());
  }
  targets_.push_back({flag, given, destination});
}

bool Outputs::to_stdout() const {
  return std::any_of(targets_.begin(), targets_.end(), [](const Target& target) { return target.given == "-"; });
}

void Outputs::save(const std::vector<std::pair<std::string, Save>>& savers, const std::function<void()>& print) const {
  std::list<io::OutputFile> files;
  const auto write = [&](const Target& target) {
    const auto saver =
        std::find_if(savers.begin(), savers.end(), [&](const auto& s) { return s.first == target.flag; });
    saver->second(files.emplace_back(target.destination));
    files.back().finish();
  };
  // A stream cannot take back what it was given, so that files, which may fail, come first.
  for (const bool streams : {false, true}) {
    for (const Target& target : targets_) {
      if (target.destination.is_stream() == streams) write(target);
    }
  }
  print();
  // Only names are left to give, which needs no more space.
  for (io::OutputFile& file : files) file.commit();
}

std::vector<std::string> Outputs::paths() const {
  std::vector<std::string> paths;
  for (const Target& target : targets_) paths.push_back(target.given);
  return paths;
}

void Outputs::say(const std::string& text) const { to_stdout() ? write_stderr(text) : write_stdout(text); }

std::string told(const std::vector<std::string>& notes, const Counts& counts, const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& note : notes) text += note + "\n";
  if (counts.any()) text += "the output holds " + counts_text(counts) + "\n";
  for (const std::string& path : paths) text += path == "-" ? "" : "wrote " + escaped(path) + "\n";
  return text;
}

void tell_beside(const std::vector<std::string>& notes, const std::vector<std::string>& paths) {
  for (const std::string& note : notes) write_stderr("attn: " + note + "\n");
  for (const std::string& path : paths) write_stderr("attn: wrote " + escaped(path) + "\n");
}

}  // namespace attn::tool
