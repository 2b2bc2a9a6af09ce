// The text of a training run as token ids: what is trained on, what is not, and batches of both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/random.hpp"
#include "attn/tensor.hpp"
#include "attn/tokenizer.hpp"

namespace attn::tool {

struct Batch {
  Tensor ids, targets;  // int64 (b, t); a target is the id that follows
};

class Text {
 public:
  // The files' bytes one after the other; "-" is standard input. The last `validation` of the tokens is set aside.
  // Throws Error when either part is shorter than a batch's text.
  Text(const std::vector<std::string>& files, const Tokenizer& tokenizer, double validation, std::int64_t context);

  // Random places of the first part: one torch.randint(0, n - context, (batch,)).
  Batch training(Generator& rng, std::int64_t batch) const;
  // Places spread evenly over the second part: batches of `batch` texts, at most kTexts in all; always the same.
  std::vector<Batch> validation(std::int64_t batch) const;

  std::int64_t training_tokens() const noexcept { return split_; }
  std::int64_t validation_tokens() const noexcept { return static_cast<std::int64_t>(ids_.size()) - split_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::string fingerprint() const;  // of all tokens: a resumed run must have the same

  static constexpr std::int64_t kTexts = 64;

 private:
  Batch at(const std::vector<std::int64_t>& starts) const;

  std::vector<std::int32_t> ids_;
  std::int64_t split_ = 0, context_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace attn::tool
