// A tokenizer's files by their path.
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "attn/error.hpp"
#include "io/file.hpp"
#include "text/readers.hpp"

namespace attn::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles = "BPETokenizer";

std::string read(const fs::path& file) {
  const io::Buffer buffer = io::read_file(file, kFiles);
  return std::string(io::as_text(buffer.bytes()));
}

// The templates in files of their own, which come before those of tokenizer_config.json.
std::map<std::string, std::string> chat_files(const fs::path& folder) {
  std::map<std::string, std::string> all;
  const auto one = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  if (fs::exists(one)) all["default"] = read(one);
  if (fs::is_directory(more)) {
    for (const auto& file : fs::directory_iterator(more)) {
      if (file.path().extension() == ".jinja") all[file.path().stem().string()] = read(file.path());
    }
  }
  return all;
}

// tokenizer.json with what the files beside it add.
Description describe_folder(const fs::path& path, const io::Origin& origin) {
  Description description = describe_tokenizer_json(read(path / "tokenizer.json"), origin);
  const auto config = path / "tokenizer_config.json", map = path / "special_tokens_map.json";
  const auto config_source = io::source_name(config), map_source = io::source_name(map);
  const io::Origin config_origin{kFiles, config_source};
  std::string said = fs::exists(config) ? read(config) : std::string("{}");
  if (fs::exists(map)) said = with_special_tokens(said, config_origin, read(map), {kFiles, map_source});
  add_tokenizer_config(said, config_origin, description);
  const auto added = path / "added_tokens.json";
  if (fs::exists(added)) {
    const auto added_source = io::source_name(added);
    add_added_tokens(read(added), {kFiles, added_source}, description);
  }
  if (auto templates = chat_files(path); !templates.empty()) description.chat_templates = std::move(templates);
  return description;
}

}  // namespace

std::pair<Description, std::string> describe_files(const fs::path& path) {
  if (!fs::is_directory(path)) {
    const std::string source = io::source_name(path);
    return {describe_tokenizer_json(read(path), {kFiles, source}), source};
  }
  const auto file = path / "tokenizer.json";
  if (fs::exists(file)) {
    const std::string source = io::source_name(file);
    return {describe_folder(path, {kFiles, source}), source};
  }
  if (!fs::exists(path / "vocab.json")) {
    throw Error(Error::Kind::file, kFiles, "a tokenizer.json, or vocab.json and merges.txt",
                "none in " + io::source_name(path));
  }
  return {describe_gpt2(read(path / "vocab.json"), read(path / "merges.txt")), "vocab.json and merges.txt"};
}

}  // namespace attn::text
