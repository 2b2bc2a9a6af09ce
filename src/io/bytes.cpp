#include "io/bytes.hpp"

#include <algorithm>
#include <cctype>

#include "attn/error.hpp"
#include "core/escape.hpp"

namespace attn::io {

namespace {

// The text with each word that is a key replaced by the key of the file.
std::string in_words_of(const KeyNames& names, std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto is_word = [&](std::size_t i) {
      return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_';
    };
    std::size_t end = at;
    while (end < text.size() && is_word(end)) ++end;
    const std::string_view word = text.substr(at, end - at);
    const auto own = names.find(word);
    result.append(own == names.end() ? word : own->second);
    if (end < text.size()) result += text[end];
    at = end + 1;
  }
  return result;
}

}  // namespace

void Origin::fail(std::string_view expected, std::string_view found, std::string_view hint) const {
  std::string where(found);
  if (!source.empty()) where.append(" in ").append(source);
  throw Error(Error::Kind::data, op, names ? in_words_of(*names, expected) : std::string(expected), where,
              std::string(hint).append(hint.empty() || advice.empty() ? "" : ", or ").append(advice));
}

std::string excerpt(std::string_view text) {
  std::size_t end = std::min<std::size_t>(text.size(), 60);
  const bool cut = end < text.size();
  while (cut && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80) --end;  // not within a character
  return escaped(text.substr(0, end)).append(cut ? "…" : "");
}

std::string in_quotes(std::string_view text) { return std::string("\"").append(excerpt(text)).append("\""); }

std::uint64_t little_endian(Bytes bytes, std::size_t offset, std::size_t count) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
  return value;
}

void ExtentBuilder::add(std::uint64_t size) {
  if (shape_.size() == Shape::max_rank) origin_.fail("a tensor of at most 8 dimensions", "more");
  empty_ = empty_ || size == 0;
  if (size > kLimit || (size != 0 && product_ > kLimit / size)) {
    origin_.fail(sizeof(void*) == 8 ? "a shape of fewer than 2^63 elements" : "a shape of fewer than 2^31 elements",
                 "a size of " + std::to_string(size) + " that passes it");
  }
  if (size != 0) product_ *= size;
  shape_.push_back(static_cast<std::int64_t>(size));
}

Extent ExtentBuilder::finish(DType dtype) const {
  if (product_ > kLimit / size_of(dtype)) {
    origin_.fail(sizeof(void*) == 8 ? "a tensor of fewer than 2^63 bytes" : "a tensor of fewer than 2^31 bytes",
                 "shape " + shape_.str() + " of " + std::string(name(dtype)));
  }
  return {shape_, empty_ ? 0 : static_cast<std::size_t>(product_ * size_of(dtype))};
}

}  // namespace attn::io
