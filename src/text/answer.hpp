// Shows what a model writes, up to a text that ends it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/tokenizer.hpp"

namespace attn {

class Answer {
 public:
  // Without a tokenizer, there is no text. The tokenizer and `stops` have to outlive it.
  Answer(const Tokenizer* tokenizer, const std::vector<std::string>& stops) : tokenizer_(tokenizer), stops_(&stops) {}

  // The bytes that can be shown by now: what may be the beginning of a stop waits.
  std::string push(std::int64_t id);
  std::string finish();  // what waited

  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // all that could be shown

 private:
  std::string show(std::size_t count);

  const Tokenizer* tokenizer_;
  const std::vector<std::string>* stops_;
  std::string text_, waiting_;
  bool stopped_ = false;
};

}  // namespace attn
