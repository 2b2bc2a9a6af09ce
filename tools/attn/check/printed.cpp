#include "check/printed.hpp"

#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "common/format.hpp"

namespace attn::check {
namespace {

bool in_number(char c) { return std::string_view("+-.0123456789einfa").find(c) != std::string_view::npos; }

// Sizes by depth: a dimension's size is the number of entries between its first pair of brackets.
class BracketShape {
 public:
  void open() {
    if (++depth_ > sizes_.size()) sizes_.push_back({});
    if (depth_ > 1) ++sizes_[depth_ - 2].count;
  }
  void close() {
    Level& level = sizes_[--depth_];
    if (level.size == 0) level.size = level.count;
    if (level.size != level.count) throw Error(Error::Kind::data, "check", "rows of one length", "a ragged tensor");
    level.count = 0;
  }
  void number() {
    if (depth_ > 0) ++sizes_[depth_ - 1].count;
  }
  Shape shape() const {
    Shape shape;
    for (const Level& level : sizes_) shape.push_back(level.size);
    return shape;
  }

 private:
  struct Level {
    std::int64_t size = 0, count = 0;
  };
  std::vector<Level> sizes_;
  std::size_t depth_ = 0;
};

// The part of a printed value that holds numbers: inside tensor( … ) up to a keyword such as grad_fn=.
std::string_view numbers_part(std::string_view text) {
  for (const std::string_view prefix : {"tensor(", "torch.Size("}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  return text.substr(0, text.find("grad_fn"));
}

Printed parse_entry(std::string_view what, std::string_view text) {
  Printed printed{std::string(what), {}, {}};
  if (text.starts_with("True")) {
    printed.numbers.emplace_back("1");
    return printed;
  }
  BracketShape brackets;
  text = numbers_part(text);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '[') brackets.open();
    if (text[i] == ']') brackets.close();
    std::size_t end = i;
    while (end < text.size() && in_number(text[end])) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    printed.numbers.emplace_back(text.substr(i, end - i));
    brackets.number();
    i = end;
  }
  printed.shape = brackets.shape();
  return printed;
}

int decimals(std::string_view number) {
  const auto point = number.find('.');
  if (point == std::string_view::npos) return 0;
  return std::max(4, static_cast<int>(number.size() - point - 1));
}

double parse_number(const std::string& number) {
  if (number == "inf") return INFINITY;
  if (number == "-inf") return -INFINITY;
  if (const auto value = tool::number_in<double>(number)) return *value;
  throw Error(Error::Kind::data, "check", "a number", number);
}

}  // namespace

std::vector<Printed> parse_printed(std::string_view text) {
  std::vector<Printed> entries;
  while (text.starts_with("@ ")) {
    const auto line_end = text.find('\n');
    const auto next = std::min(text.find("\n@ ", line_end), text.size() - 1);
    entries.push_back(parse_entry(text.substr(2, line_end - 2), text.substr(line_end + 1, next - line_end - 1)));
    text.remove_prefix(next + 1);
  }
  return entries;
}

Comparison compare(const Printed& printed, const Tensor& computed) {
  Comparison row;
  row.numbers = printed.numbers.size();
  if (!(computed.shape() == printed.shape)) {
    row.detail = "printed shape " + printed.shape.str() + ", computed " + computed.shape().str();
    return row;
  }
  row.ok = true;
  const Tensor flat = computed.to(DType::f64).contiguous();
  for (std::size_t i = 0; i < printed.numbers.size(); ++i) {
    const double value = flat.data<double>()[i], expected = parse_number(printed.numbers[i]);
    const int places = decimals(printed.numbers[i]);
    const bool same =
        std::isinf(expected) ? value == expected : tool::fixed(value, places) == tool::fixed(expected, places);
    if (value != expected) row.worst_difference = std::fmax(row.worst_difference, std::fabs(value - expected));
    if (same || !row.ok) {
      row.ok = row.ok && same;
      continue;
    }
    row.ok = false;
    row.detail =
        "number " + std::to_string(i + 1) + ": printed " + printed.numbers[i] + ", computed " + tool::fixed(value, 6);
  }
  return row;
}

}  // namespace attn::check
