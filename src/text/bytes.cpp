// Bytes as tokens, and bytes as characters.
#include <string>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "core/utf8.hpp"

namespace attn {

std::vector<std::int64_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<std::uint8_t>(c));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id > 255) {
      throw Error(Error::Kind::argument, "ByteTokenizer::decode", "ids from 0 to 255", std::to_string(id));
    }
    text.push_back(static_cast<char>(id));
  }
  return text;
}

std::int64_t ByteTokenizer::vocab_size() const noexcept { return 256; }

std::string Utf8Stream::push(std::string_view bytes) {
  rest_.append(bytes);
  std::string whole;
  std::string_view left = rest_;
  while (!left.empty()) {
    const auto c = first_character(left);
    if (c.cut_off) break;
    whole.append(c.valid ? left.substr(0, c.length) : "\xef\xbf\xbd");
    left.remove_prefix(c.length);
  }
  rest_.erase(0, rest_.size() - left.size());
  return whole;
}

std::string Utf8Stream::finish() {
  const std::string end = rest_.empty() ? "" : "\xef\xbf\xbd";
  rest_.clear();
  return end;
}

}  // namespace attn
