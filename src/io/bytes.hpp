// Bounded reading of bytes that nobody vouches for, and the errors that all parsers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "attn/dtype.hpp"
#include "attn/shape.hpp"

namespace attn::io {

using Bytes = std::span<const std::byte>;

// Holds a file's own names of the keys by which its values are read.
using KeyNames = std::map<std::string, std::string, std::less<>>;

// Who reads what, for messages.
struct Origin {
  std::string_view op;      // "parse_npy"
  std::string_view source;  // a file's name, or another word for where the bytes came from
  const KeyNames* names = nullptr;
  std::string_view advice = {};  // the hint of all errors, or what follows their own one

  // Throws Error (data): "[op] expected …; found … in source; hint". Keys in what was expected have the file's own
  // names.
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint = {}) const;
};

// `text` cut and escaped: what a hostile file holds must not garble the message.
std::string excerpt(std::string_view text);
std::string in_quotes(std::string_view text);  // the same between quotes

inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes as_bytes(std::string_view text) noexcept { return std::as_bytes(std::span(text.data(), text.size())); }

// The `count` bytes (at most 8) at `offset`, little-endian; they must be there.
std::uint64_t little_endian(Bytes bytes, std::size_t offset, std::size_t count) noexcept;

// A shape with the bytes of its elements; a claim of a file until compared with the bytes that are there.
struct Extent {
  Shape shape;
  std::size_t bytes = 0;
};

// Collects sizes one by one; throws past eight dimensions or what memory can be addressed. Zero sizes do not hide an
// overflow of the others, so strides of the shape can be computed without one.
class ExtentBuilder {
 public:
  explicit ExtentBuilder(const Origin& origin) : origin_(origin) {}
  void add(std::uint64_t size);
  Extent finish(DType dtype) const;

 private:
  static constexpr std::uint64_t kLimit = std::numeric_limits<std::ptrdiff_t>::max();

  const Origin& origin_;
  Shape shape_;
  std::uint64_t product_ = 1;  // of the sizes above zero
  bool empty_ = false;
};

}  // namespace attn::io
