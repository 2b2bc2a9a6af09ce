// A language model of files with its tokenizer: what attn.load gives, and what experiments are made on.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attn/language_model.hpp"
#include "attn/pretrained.hpp"
#include "attn/report.hpp"
#include "attn/tokenizer.hpp"

namespace attn::python {

namespace nb = nanobind;
using Ids = std::vector<std::int64_t>;

// Threads share it one after the other, as the model keeps its last forward pass. Nobody waits for the GIL while
// holding a mutex.
class TextModel {
 public:
  TextModel(std::string from, std::optional<DType> dtype, Precision precision, std::string tokenizer)
      : path(std::move(from)), weights(dtype), model(load_language_model(path, dtype, precision)), given_(tokenizer) {}

  // It is read when it is asked for: a model of ids needs none.
  const Tokenizer& tokenizer() {
    const std::lock_guard lock(tokenizer_mutex_);
    if (!tokenizer_) tokenizer_ = tokenizer_of(path, model.config().vocab_size, given_);
    return *tokenizer_;
  }

  const std::string& given() const noexcept { return given_; }  // where its tokenizer is; empty: with the model

  const std::string path;
  const std::optional<DType> weights;  // none: as the file has them
  LanguageModel model;
  std::mutex mutex;  // of the model

 private:
  std::string given_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::mutex tokenizer_mutex_;
};

inline Tensor tensor_of(const Ids& ids) { return Tensor::from(std::span(ids), {std::ssize(ids)}); }

// UTF-8 as Python has it; what is none becomes U+FFFD.
inline nb::str python_text(const std::string& bytes) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

// Reads attn.report()'s arguments for a model's page.
ReportOptions page_options(nb::handle tokens, nb::handle key_tokens, nb::handle title, nb::handle layer,
                           nb::handle head);
// The page holds the files of the model and computes.
void make_live(ReportOptions& options, const std::string& path, const std::string& tokenizer, bool checkpoints);

void bind_experiments(nb::class_<TextModel>& model);

}  // namespace attn::python
