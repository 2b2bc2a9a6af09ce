// Tables of numbers as text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "core/utf8.hpp"
#include "io/elements.hpp"
#include "io/writers.hpp"

namespace attn::io {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \r";  // not tabs: an empty field between or beside them is a mistake to report
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Whether the number, in from_chars' notation, is nearer to zero than one: it may be out of double's range.
bool is_small(std::string_view text) {
  const std::size_t first = text.find_first_of("123456789"), exponent = std::min(text.find_first_of("eE"), text.size());
  if (first >= exponent) return true;
  const std::size_t point = std::min(text.find('.'), exponent);
  // Digits between the point and the first that counts: negative where that comes first.
  const double places = static_cast<double>(first) - static_cast<double>(point);
  std::string_view power = text.substr(std::min(exponent + 1, text.size()));
  const bool down = power.starts_with('-');
  if (down || power.starts_with('+')) power.remove_prefix(1);
  double shift = 0;
  for (const char digit : power) shift = 10 * shift + (digit - '0');
  return places > (down ? -shift : shift);
}

// Numbers that float32 is too coarse for are rounded, also to zero; too large ones are none.
std::optional<float> number(std::string_view text) {
  // from_chars takes no plus sign.
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  float value = 0;
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return {};
  if (parsed.ec == std::errc()) return value;
  double wide = 0;
  const bool fits = std::from_chars(text.data(), end, wide).ec == std::errc();
  if (!(fits ? std::abs(wide) < 1 : is_small(text))) return {};
  return fits ? static_cast<float>(wide) : text.starts_with('-') ? -0.0f : 0.0f;
}

// Blanks, signs and dashes of Unicode may stand before a number's first digit, where ASCII has no letter.
bool is_sign_or_blank(std::uint32_t code) {
  const auto in = [code](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  return code == 0xa0 || in(0x2000, 0x200f) || in(0x2010, 0x2015) || code == 0x202f || code == 0x2212 ||
         in(0x207a, 0x207b) || code == 0x3000 || code == 0xfe63 || code == 0xfeff || code == 0xff0b || code == 0xff0d;
}

// Arabic, Persian, Devanagari and full-width digits, the ones that spreadsheets write.
bool is_foreign_digit(std::uint32_t code) {
  const auto in = [code](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  return in(0x660, 0x669) || in(0x6f0, 0x6f9) || in(0x966, 0x96f) || in(0xff10, 0xff19);
}

enum class Cell { blank, name, number };

// By what comes first, a letter or a digit: "0x10", "−1" and "1e39" are meant as numbers, "d2" as a name.
Cell kind_of(std::string_view text) {
  if (number(text)) return Cell::number;  // nan and inf, too
  while (!text.empty()) {
    const Character c = first_character(text);
    text.remove_prefix(c.length);
    if ((c.code >= '0' && c.code <= '9') || is_foreign_digit(c.code)) return Cell::number;
    const std::uint32_t lower = c.code | 0x20u;
    if ((lower >= 'a' && lower <= 'z') || c.code == '_' || (c.code >= 0x80 && !is_sign_or_blank(c.code))) {
      return Cell::name;
    }
  }
  return Cell::blank;
}

// A row of names: at least one, and no cell that is meant as a number.
bool is_header(std::span<const std::string_view> cells) {
  bool names = false;
  for (const std::string_view cell : cells) {
    const Cell kind = kind_of(cell);
    if (kind == Cell::number) return false;
    names = names || kind == Cell::name;
  }
  return names;
}

// Without the comment, which '#' opens at the beginning or behind a blank or a separator: "1.#INF" is no 1.
std::string_view without_comment(std::string_view line) {
  constexpr std::string_view before = " ,;\t";
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || before.find(line[at - 1]) != std::string_view::npos) return line.substr(0, at);
  }
  return line;
}

// The fields of one line; runs of blanks count as one separator, every other separator for itself.
void split(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  constexpr std::string_view separators = ",;\t";
  const auto used = std::find_if(separators.begin(), separators.end(),
                                 [&](char c) { return line.find(c) != std::string_view::npos; });
  const char separator = used == separators.end() ? ' ' : *used;
  while (true) {
    const std::size_t at = line.find(separator);
    fields.push_back(trim(line.substr(0, at)));
    if (at == std::string_view::npos) return;
    line.remove_prefix(at + 1);
    if (separator == ' ') line = trim(line);
  }
}

class CsvReader {
 public:
  explicit CsvReader(const Origin& origin) : origin_(origin) {}

  Tensor read(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      ++line_;
      line(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (rows_ == 0) origin_.fail("rows of numbers", "none");
    return Tensor::from(std::span<const float>(values_), {rows_, static_cast<std::int64_t>(columns_)});
  }

 private:
  void line(std::string_view text) {
    text = trim(without_comment(text));
    if (text.empty()) return;
    split(text, fields_);
    const bool first = rows_ == 0 && !names_seen_;
    if (first && is_header(fields_)) {
      names_seen_ = true;
      return;
    }
    if (rows_ == 0) columns_ = fields_.size();
    if (fields_.size() != columns_) {
      origin_.fail(std::to_string(columns_) + " columns, as in the first row",
                   std::to_string(fields_.size()) + " in line " + std::to_string(line_));
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) values_.push_back(value(i));
    ++rows_;
  }

  float value(std::size_t column) const {
    if (const auto parsed = number(fields_[column])) return *parsed;
    origin_.fail(
        "a decimal number in float32's range",
        in_quotes(fields_[column]) + " in line " + std::to_string(line_) + ", column " + std::to_string(column + 1),
        rows_ == 0 ? "a row of names has no cell that begins like a number; # makes a line a comment"
                   : "files may be .npy, .npz, safetensors or rows of numbers");
  }

  const Origin& origin_;
  std::vector<float> values_;
  std::vector<std::string_view> fields_;
  std::int64_t line_ = 0, rows_ = 0;
  std::size_t columns_ = 0;
  bool names_seen_ = false;
};

// Shortest text that reads back as the same number.
template <class T>
std::string rows_of(const Tensor& table) {
  std::string text;
  const std::int64_t columns = table.rank() == 2 ? table.size(1) : 1;
  const std::span values(table.data<T>(), static_cast<std::size_t>(table.numel()));
  std::int64_t column = 0;
  for (const T value : values) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text.append(digits, end).append(1, ++column == columns ? '\n' : ',');
    if (column == columns) column = 0;
  }
  return text;
}

void require_table(const Tensor& tensor) {
  require_defined(tensor, "save_csv");
  if (tensor.rank() != 1 && tensor.rank() != 2) {
    throw Error(Error::Kind::shape, "save_csv", "a tensor of rank 1 or 2", tensor.shape().str(),
                "save it as .npy, or select() a part");
  }
}

}  // namespace

Tensor parse_csv(std::string_view text, std::string_view source) {
  const Origin origin{"parse_csv", source};
  return CsvReader(origin).read(text);
}

void write_csv(OutputFile& file, const Tensor& tensor) {
  require_table(tensor);
  if (tensor.dtype() == DType::f64) {
    file.write(rows_of<double>(tensor.contiguous()));
  } else if (is_floating(tensor.dtype())) {
    file.write(rows_of<float>(tensor.to(DType::f32).contiguous()));
  } else {
    // Not by way of double, which does not hold every int64.
    const Tensor whole = tensor.dtype() == DType::i64 ? tensor : tensor.to(DType::i64);
    file.write(rows_of<std::int64_t>(whole.contiguous()));
  }
}

void save_csv(const std::filesystem::path& path, const Tensor& tensor) {
  OutputFile file(path, "save_csv");
  write_csv(file, tensor);
  file.commit();
}

}  // namespace attn::io
