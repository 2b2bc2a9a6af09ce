#include "common/text_model.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"
#include "common/fingerprint.hpp"
#include "common/format.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

// "a folder of a.txt, b and 7 more"
std::string folder_text(const fs::path& folder) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> names;
  std::error_code unreadable;
  for (fs::directory_iterator at(folder, unreadable), end; !unreadable && at != end; at.increment(unreadable)) {
    names.push_back(escaped(at->path().filename().string()));
  }
  if (unreadable) return "a folder that cannot be read: " + unreadable.message();
  if (names.empty()) return "an empty folder";
  std::ranges::sort(names);
  const std::size_t left = names.size() > shown ? names.size() - shown : 0;
  names.resize(names.size() - left);
  return "a folder of " + joined(names, ", ") + (left > 0 ? formatted(" and {} more", left) : "");
}

}  // namespace

TextModel::TextModel(fs::path path, std::optional<DType> weights, Precision precision)
    : path_(std::move(path)), model_(std::make_unique<LanguageModel>(load_language_model(path_, weights, precision))) {}

TextModel::TextModel(fs::path path, Encoder encoder)
    : path_(std::move(path)), encoder_(std::make_unique<Encoder>(std::move(encoder))) {}

std::unique_ptr<Tokenizer> TextModel::tokenizer(const std::string& given) const {
  return tokenizer_of(path_, vocab_size(), given, "--tokenizer");
}

// "12 layers of 12 heads, fingerprint 0123456789abcdef"
std::string TextModel::identity() {
  const LanguageModelConfig& c = config();
  return formatted("{} layers of {} heads, fingerprint {}", size().layers, size().heads,
                   fingerprint(model_->parameters(), c.json));
}

void TextModel::read(std::span<const std::int64_t> ids, Trace& steps) {
  const NoGrad no_grad;
  const Tensor text = Tensor::from(ids, {std::ssize(ids)});
  model_ ? model_->forward(text, &steps) : encoder_->forward(text, &steps);
}

void TextModel::read(std::span<const std::int64_t> ids, const std::set<std::size_t>& wanted, const LayerSteps& each) {
  const Tensor text = Tensor::from(ids, {std::ssize(ids)});
  model_ ? read_layers(*model_, text, wanted, each) : read_layers(*encoder_, text, wanted, each);
}

void require_model(const char* op, const fs::path& path) {
  std::error_code ignored;
  std::string found;
  if (!fs::exists(path, ignored)) {
    found = "nothing there";
  } else if (fs::is_directory(path, ignored)) {
    if (fs::exists(path / "config.json", ignored) || fs::exists(path / "model.safetensors", ignored)) return;
    found = folder_text(path);
  } else {
    if (path.extension() == ".safetensors" || io::is_gguf(path)) return;
    found = "a file of another kind";
  }
  throw Error(Error::Kind::file, op,
              "a model at " + path.string() + ": a folder with config.json, a GGUF file, or what attn train wrote",
              found);
}

std::unique_ptr<TextModel> load_text_model(const fs::path& path, std::optional<DType> weights, Precision precision) {
  require_model("--model", path);
  return std::make_unique<TextModel>(path, weights, precision);
}

std::unique_ptr<TextModel> load_reader(const fs::path& path, std::optional<DType> weights) {
  require_model("--model", path);
  if (!is_encoder(path)) return load_text_model(path, weights);
  return std::make_unique<TextModel>(path, load_encoder(path));
}

}  // namespace attn::tool
