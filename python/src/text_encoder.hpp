// An encoder of files with its tokenizer: what attn.Encoder is, and experiments take, too.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "text_model.hpp"

namespace attn::python {

// A model's files. Threads share it one after the other, as it keeps its last forward pass.
class TextEncoder {
 public:
  explicit TextEncoder(const std::string& folder)
      : model(load_encoder(folder)), settings_(embedding_settings(folder)), folder_(folder) {}

  const Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = BPETokenizer::load(folder_);
    return *tokenizer_;
  }
  Ids encode(const std::string& text) { return tokenizer().encode(text); }

  // The ids of a text, cut as the model's files say; longer ones are an error where they say nothing.
  Ids encode_cut(const std::string& text) {
    Ids ids = encode(text);
    const std::int64_t most = std::min(settings_.longest, model.config().model.context_length);
    if (settings_.longest == kNoLongest || std::ssize(ids) <= most) return ids;
    const std::string cut = "a text of " + std::to_string(ids.size()) + " tokens is cut to " + std::to_string(most) +
                            " of them, as the model's files say";
    if (PyErr_WarnEx(PyExc_UserWarning, cut.c_str(), 1) != 0) throw nb::python_error();
    return tokenizer_->encode(text, {.most = static_cast<std::size_t>(most)});
  }

  Tensor embed(const std::vector<Ids>& texts, const std::optional<std::string>& pooling,
               std::optional<bool> normalised) {
    EmbeddingSettings chosen = settings_;
    if (pooling && *pooling != "mean" && *pooling != "first") {
      throw Error(Error::Kind::argument, "Encoder", "pooling \"mean\" or \"first\"", "\"" + *pooling + "\"");
    }
    if (pooling) chosen.pooling = *pooling == "mean" ? Pooling::mean : Pooling::first;
    return model.embed(texts, chosen.pooling, normalised.value_or(chosen.normalised));
  }

  const std::string& folder() const noexcept { return folder_; }

  Encoder model;
  std::mutex mutex;  // of the model

 private:
  EmbeddingSettings settings_;
  std::string folder_;
  std::optional<BPETokenizer> tokenizer_;
};

void bind_experiments(nb::class_<TextEncoder>& encoder);

}  // namespace attn::python
