// The header of an .npy array: a Python dict literal of three known keys.
#include <algorithm>
#include <array>

#include "io/npy.hpp"

namespace attn::io {
namespace {

struct NpyKind {
  std::string_view code;
  DType dtype;
};
constexpr std::string_view kCutOff = "the file is cut off";
constexpr std::array<NpyKind, 8> kNpyKinds{{{"f8", DType::f64},
                                            {"f4", DType::f32},
                                            {"f2", DType::f16},
                                            {"i8", DType::i64},
                                            {"i4", DType::i32},
                                            {"i1", DType::i8},
                                            {"u1", DType::u8},
                                            {"b1", DType::boolean}}};

// Just the grammar that NumPy writes for an array without fields: no recursion, every step bounded by the text.
class DictParser {
 public:
  DictParser(std::string_view text, const Origin& origin) : text_(text), origin_(origin) {}

  NpyHeader parse() {
    expect('{', "a dict");
    while (!accept('}')) {
      entry();
      if (!accept(',')) {
        expect('}', "a comma or the dict's end");
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) fail("nothing after the dict");
    if (!descr_ || !order_ || !shape_) fail("the keys descr, fortran_order and shape");
    header_.extent = extent_.finish(header_.dtype);
    return header_;
  }

 private:
  void entry() {
    const std::string_view key = string();
    expect(':', "a colon");
    if (key == "descr") {
      once(descr_, key);
      descr();
    } else if (key == "fortran_order") {
      once(order_, key);
      header_.fortran = boolean();
    } else if (key == "shape") {
      once(shape_, key);
      shape();
    } else {
      origin_.fail("an npy header with the keys descr, fortran_order and shape", "key " + in_quotes(key));
    }
  }

  void once(bool& seen, std::string_view key) const {
    if (seen) origin_.fail("each key of the npy header once", "key " + in_quotes(key) + " again");
    seen = true;
  }

  void descr() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '[') fail("an array of plain numbers, not one with fields");
    const std::string_view descr = string();
    const auto kind = std::find_if(kNpyKinds.begin(), kNpyKinds.end(),
                                   [&](const NpyKind& k) { return descr.size() == 3 && descr.substr(1) == k.code; });
    const bool one_byte = kind != kNpyKinds.end() && size_of(kind->dtype) == 1;
    const char order = descr.empty() ? '\0' : descr[0];
    if (kind == kNpyKinds.end() || !(order == '<' || order == '>' || (order == '|' && one_byte))) {
      origin_.fail("an element type of f2 f4 f8 i1 u1 i4 i8 b1, with < or > for its byte order",
                   "descr " + in_quotes(descr), "convert with NumPy's astype");
    }
    header_.dtype = kind->dtype;
    header_.order = order == '>' ? std::endian::big : std::endian::little;
  }

  bool boolean() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("True or False");
  }

  void shape() {
    expect('(', "a tuple");
    for (std::size_t count = 0; !accept(')'); ++count) {
      extent_.add(integer());
      if (accept(',')) continue;
      if (count == 0) fail("a comma: (3) is no tuple, (3,) is");
      expect(')', "a comma or the tuple's end");
      break;
    }
  }

  std::uint64_t integer() {
    skip_blanks();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, digit, &value)) {
        fail("a size below 2^64");
      }
    }
    if (at_ == begin) fail("a size of at least 0");
    if (text_[begin] == '0' && at_ > begin + 1) {
      at_ = begin;
      fail("a size without leading zeros");
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return value;
  }

  std::string_view string() {
    skip_blanks();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail("a string");
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a closing quote");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  void skip_blanks() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) noexcept {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view what) {
    if (!accept(c)) fail(what);
  }
  [[noreturn]] void fail(std::string_view what) const {
    origin_.fail("an npy header with " + std::string(what) + " at its character " + std::to_string(at_),
                 at_ < text_.size() ? in_quotes(text_.substr(at_, 20)) : "its end");
  }

  std::string_view text_;
  const Origin& origin_;
  std::size_t at_ = 0;
  NpyHeader header_;
  ExtentBuilder extent_{origin_};
  bool descr_ = false, order_ = false, shape_ = false;
};

}  // namespace

NpyHeader parse_npy_header(Bytes start, const Origin& origin) {
  constexpr std::size_t version_at = 6, length_at = 8;
  if (start.size() < length_at + 2) {
    origin.fail("an npy array of at least 10 bytes", std::to_string(start.size()) + " bytes", kCutOff);
  }
  if (!as_text(start).starts_with(kNpyMagic)) origin.fail("an npy array", "other first bytes");
  const auto major = little_endian(start, version_at, 1), minor = little_endian(start, version_at + 1, 1);
  if (major < 1 || major > 3 || minor != 0) {
    origin.fail("npy format 1.0, 2.0 or 3.0", "version " + std::to_string(major) + "." + std::to_string(minor));
  }
  const std::size_t width = major == 1 ? 2 : 4, dict_at = length_at + width;
  if (start.size() < dict_at) origin.fail("an npy header", "the end of the bytes inside it", kCutOff);
  const std::uint64_t length = little_endian(start, length_at, width);
  if (length > kMaxNpyHeader - 12) origin.fail("an npy header of at most 65535 bytes", std::to_string(length));
  if (length > start.size() - dict_at) {
    origin.fail("an npy header of " + std::to_string(length) + " bytes",
                std::to_string(start.size() - dict_at) + " bytes", kCutOff);
  }
  NpyHeader header = DictParser(as_text(start.subspan(dict_at, length)), origin).parse();
  header.offset = dict_at + length;
  return header;
}

std::string npy_header(const Tensor& tensor) {
  const auto kind =
      std::find_if(kNpyKinds.begin(), kNpyKinds.end(), [&](const NpyKind& k) { return k.dtype == tensor.dtype(); });
  std::string dict = "{'descr': '";
  dict.append(size_of(tensor.dtype()) == 1 ? "|" : "<").append(kind->code);
  dict.append("', 'fortran_order': False, 'shape': ").append(tensor.shape().str()).append(", }");
  constexpr std::size_t prefix = 10, alignment = 64;
  const std::size_t padded = (prefix + dict.size() + 1 + alignment - 1) / alignment * alignment;
  dict.append(padded - prefix - dict.size() - 1, ' ').append("\n");
  std::string header(kNpyMagic);
  header.append({'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)});
  return header + dict;
}

}  // namespace attn::io
