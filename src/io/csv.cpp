// Tables of numbers as text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "attn/error.hpp"
#include "attn/io.hpp"
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

std::optional<float> number(std::string_view text) {
  // from_chars takes no plus sign.
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  float value = 0;
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end) return value;
  if (parsed.ec != std::errc::result_out_of_range || parsed.ptr != end) return {};
  // Out of range is too small as well as too large; the small ones are rounded.
  double wide = 0;
  const bool fits = std::from_chars(text.data(), end, wide).ec == std::errc();
  return fits && std::abs(wide) < 1 ? std::optional(static_cast<float>(wide)) : std::nullopt;
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
    text = trim(text.substr(0, text.find('#')));
    if (text.empty()) return;
    split(text, fields_);
    const bool first = rows_ == 0 && !names_seen_;
    if (first && std::none_of(fields_.begin(), fields_.end(), [](auto field) { return number(field).has_value(); })) {
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
        "a number in float32's range",
        in_quotes(fields_[column]) + " in line " + std::to_string(line_) + ", column " + std::to_string(column + 1),
        "files may be .npy, .npz, safetensors or rows of numbers");
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
