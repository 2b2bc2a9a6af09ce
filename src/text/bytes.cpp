// Bytes as tokens, and bytes as characters.
#include <algorithm>
#include <string>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "core/utf8.hpp"

namespace attn {

std::string Tokenizer::decode(std::span<const std::int64_t> ids, const DecodeOptions& options) const {
  std::string text;
  bool first = true;
  for (const std::int64_t id : ids) {
    const std::string bytes = first ? decode_first(id) : decode(id);  // also where it is skipped: an error is one
    if (options.skip_special_tokens && is_special(id)) continue;
    text.append(bytes);
    first = false;
  }
  const std::size_t blanks = std::min(text.find_first_not_of(' '), text.size());
  return text.erase(0, std::min(blanks, blanks_before()));
}

std::vector<std::int64_t> ByteTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  text = text.substr(0, options.most);
  std::vector<std::int64_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<std::uint8_t>(c));
  return ids;
}

std::string ByteTokenizer::decode(std::int64_t id) const {
  if (id < 0 || id > 255) {
    throw Error(Error::Kind::argument, "ByteTokenizer::decode", "ids from 0 to 255", std::to_string(id));
  }
  return std::string(1, static_cast<char>(id));
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

DecodeStream::DecodeStream(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(tokenizer), options_(options), blanks_(tokenizer.blanks_before()) {}

std::string DecodeStream::push(std::int64_t id) {
  std::string bytes = first_ ? tokenizer_.decode_first(id) : tokenizer_.decode(id);
  if (options_.skip_special_tokens && tokenizer_.is_special(id)) return "";
  first_ = false;
  const std::size_t blanks = std::min({bytes.find_first_not_of(' '), bytes.size(), blanks_});
  const bool begins = blanks < bytes.size();
  bytes.erase(0, blanks);
  blanks_ = begins ? 0 : blanks_ - blanks;
  return characters_.push(bytes);
}

}  // namespace attn
