#include "common/text_model.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"
#include "common/fingerprint.hpp"
#include "common/format.hpp"
#include "common/tokenizers.hpp"
#include "core/escape.hpp"

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

// "12 layers of 12 heads, fingerprint 0123456789abcdef"
std::string identity_of(const TextModel::Size& size, Module& model, const std::string& config) {
  return formatted("{} layers of {} heads, fingerprint {}", size.layers, size.heads,
                   fingerprint(model.parameters(), config));
}

Tensor row_of(std::span<const std::int64_t> ids) { return Tensor::from(ids, {static_cast<std::int64_t>(ids.size())}); }

class Gpt2 : public TextModel {
 public:
  Gpt2(fs::path path, DType weights, Precision precision)
      : path_(std::move(path)), model_(load_gpt(path_, Generator(0), precision)) {
    store_matrices(model_, weights);
  }
  std::int64_t context_length() const override { return model_.config().context_length; }
  std::int64_t vocab_size() const override { return model_.config().vocab_size; }
  std::unique_ptr<Tokenizer> tokenizer(const std::string& given) const override {
    return tokenizer_for(path_, model_.config(), given);
  }
  Size size() const override { return {model_.config().layers, model_.config().heads}; }
  std::string identity() override {
    const GPTConfig& c = model_.config();
    return identity_of(size(), model_, formatted("{} {} {}", c.context_length, c.epsilon, static_cast<int>(c.gelu)));
  }
  void read(std::span<const std::int64_t> ids, Trace& steps) override { model_.forward(row_of(ids), &steps); }
  // One text after the other.
  std::vector<Continuation> write(const std::vector<Ids>& prompts, const GenerateOptions& options, std::uint64_t seed,
                                  const Each& each) override {
    std::vector<Continuation> texts;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Generator rng(seed);
      const auto one = [&](std::int64_t id) { return !each || each(i, id); };
      Ids ids = generate(model_, prompts[i], options, rng, one);
      const bool stopped = static_cast<std::int64_t>(ids.size()) < options.tokens;
      texts.push_back({std::move(ids), stopped});
    }
    return texts;
  }

 private:
  fs::path path_;
  GPT model_;
};

class Pretrained : public TextModel {
 public:
  Pretrained(const fs::path& path, DType weights, Precision precision)
      : path_(path), model_(load_language_model(path, weights, precision)) {}
  std::int64_t context_length() const override { return model_.config().context_length; }
  std::int64_t vocab_size() const override { return model_.config().vocab_size; }
  Ids end_ids() const override { return model_.config().end_ids; }
  std::unique_ptr<Tokenizer> tokenizer(const std::string& given) const override {
    return released_tokenizer(given.empty() ? path_ : fs::path(given), model_.config().vocab_size);
  }
  Size size() const override {
    return {static_cast<std::int64_t>(model_.config().layers.size()), model_.config().heads};
  }
  std::string identity() override { return identity_of(size(), model_, model_.config().json); }
  void read(std::span<const std::int64_t> ids, Trace& steps) override { model_.forward(row_of(ids), &steps); }
  std::vector<Continuation> write(const std::vector<Ids>& prompts, const GenerateOptions& options, std::uint64_t seed,
                                  const Each& each) override {
    return generate(model_, prompts, options, seed, each);
  }

 private:
  fs::path path_;
  LanguageModel model_;
};

}  // namespace

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

std::unique_ptr<TextModel> load_text_model(const fs::path& path, DType weights, Precision precision) {
  require_model("--model", path);
  if (is_language_model(path)) return std::make_unique<Pretrained>(path, weights, precision);
  return std::make_unique<Gpt2>(path, weights, precision);
}

}  // namespace attn::tool
