#include "text/answer.hpp"

#include <algorithm>
#include <string_view>

namespace attn {

// Ids that the tokenizer lacks have no text: tables of embeddings are padded.
std::string Answer::push(std::int64_t id) {
  if (stopped_ || !tokenizer_ || id >= tokenizer_->vocab_size()) return "";
  waiting_ += tokenizer_->decode(id);
  std::size_t found = std::string::npos, begun = 0;
  for (const std::string& stop : *stops_) {
    found = std::min(found, waiting_.find(stop));
    for (std::size_t size = std::min(stop.size() - 1, waiting_.size()); size > begun; --size) {
      if (std::string_view(waiting_).ends_with(std::string_view(stop).substr(0, size))) begun = size;
    }
  }
  stopped_ = found != std::string::npos;
  return show(stopped_ ? found : waiting_.size() - begun);
}

std::string Answer::finish() { return stopped_ ? "" : show(waiting_.size()); }

std::string Answer::show(std::size_t count) {
  std::string shown = waiting_.substr(0, count);
  waiting_.erase(0, count);
  text_ += shown;
  return shown;
}

}  // namespace attn
