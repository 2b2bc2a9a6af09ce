#include "common/live_model.hpp"

#include "attn/gguf.hpp"
#include "common/options.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMost = 300'000'000;  // what a browser opens

std::string read(const fs::path& path) {
  const io::Buffer buffer = io::read_file(path, "--live", kMost);
  return std::string(io::as_text(buffer.bytes()));
}

std::string read_if_there(const fs::path& path) { return fs::exists(path) ? read(path) : std::string(); }

[[noreturn]] void not_live(std::string_view expected, const std::string& found) {
  refuse("--live", expected, found, "leave --live out");
}

}  // namespace

LiveModel live_model(const fs::path& path, const std::string& given) {
  const bool folder = fs::is_directory(path), gguf = !folder && io::is_gguf(path);
  const fs::path weights = folder ? path / "model.safetensors" : path;
  if (!fs::exists(weights)) not_live("a model in one file, model.safetensors", "none in " + io::source_name(path));
  LiveModel model{.weights = read(weights)};
  if (gguf && given.empty()) return model;
  if (gguf) not_live("the tokenizer of the GGUF file itself", "--tokenizer");
  const fs::path beside = folder ? path : path.parent_path(), own = given.empty() ? beside : fs::path(given);
  model.config = read_if_there(beside / "config.json");
  if (!fs::is_directory(own.empty() ? fs::path(".") : own)) {
    model.tokenizer = read(own);
    return model;
  }
  model.tokenizer = read_if_there(own / "tokenizer.json");
  model.tokenizer_config = model.tokenizer.empty() ? std::string() : read_if_there(own / "tokenizer_config.json");
  for (const char* name : {"vocab.json", "special_tokens_map.json", "added_tokens.json"}) {
    if (name == std::string_view("vocab.json") && !model.tokenizer.empty()) continue;
    if (fs::exists(own / name)) not_live("a tokenizer in a tokenizer.json alone", name);
  }
  return model;
}

}  // namespace attn::tool
