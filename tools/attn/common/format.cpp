#include "common/format.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <sstream>

#include "common/terminal.hpp"

namespace attn::tool {
namespace {

// This stands behind the colon of a field.
struct Spec {
  char align = 0, fill = ' ', type = 0;
  int width = 0, precision = -1;
};

int take_number(std::string_view& text) {
  int number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  if (take(text, '<')) spec.align = '<';
  if (take(text, '>')) spec.align = '>';
  if (take(text, '0')) spec.fill = '0';
  spec.width = take_number(text);
  if (take(text, '.')) spec.precision = take_number(text);
  if (!text.empty()) spec.type = text.front();
  return spec;
}

std::string printed(const char* how, int precision, double value) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, how, precision, value)) + 1, '\0');
  std::snprintf(text.data(), text.size(), how, precision, value);
  text.pop_back();
  return text;
}

std::string number_text(double value, const Spec& spec) {
  if (spec.type == 0) return shortest(value);
  const char how[] = {'%', '.', '*', spec.type, '\0'};
  return printed(how, spec.precision, value);
}

template <std::integral T>
std::string number_text(T value, const Spec& spec) {
  std::array<char, 24> digits{};
  const int base = spec.type == 'x' ? 16 : 10;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr};
}

std::string number_text(std::string_view text, const Spec&) { return std::string(text); }

std::string field(const Formattable& formattable, const Spec& spec) {
  const auto width = static_cast<std::size_t>(spec.width);
  std::string text = std::visit([&](const auto& value) { return number_text(value, spec); }, formattable.value());
  const std::string blank(width - std::min(width, width_of(text)), spec.fill);
  const bool is_text = std::holds_alternative<std::string_view>(formattable.value());
  return spec.align == '<' || (spec.align == 0 && is_text) ? text + blank : blank + text;
}

}  // namespace

std::string format_fields(std::string_view pattern, std::span<const Formattable> values) {
  std::string text;
  for (const Formattable& value : values) {
    const std::size_t begin = pattern.find('{'), end = pattern.find('}', begin);
    std::string_view spec = pattern.substr(begin + 1, end - begin - 1);
    take(spec, ':');
    text.append(pattern.substr(0, begin)).append(field(value, parse_spec(spec)));
    pattern.remove_prefix(end + 1);
  }
  return text.append(pattern);
}

std::string fixed(double value, int digits) { return printed("%.*f", digits, value); }

std::string shortest(double value) {
  constexpr int decimal = std::numeric_limits<double>::digits10, enough = std::numeric_limits<double>::max_digits10;
  const std::string text = printed("%.*g", decimal, value);
  return std::strtod(text.c_str(), nullptr) == value ? text : printed("%.*g", enough, value);
}

std::string counted(std::int64_t count, std::string_view thing) {
  return formatted("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string wrapped(const std::vector<std::string>& words, std::size_t columns, std::size_t indent) {
  std::string text;
  std::size_t column = indent;
  for (const std::string& word : words) {
    if (column != indent && column + 1 + width_of(word) > columns) {
      text.append("\n").append(indent, ' ');
      column = indent;
    } else if (column != indent) {
      text.append(" ");
      ++column;
    }
    text.append(word);
    column += width_of(word);
  }
  return text;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::vector<std::int64_t>> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split(text, ',')) {
    const auto number = number_in<std::int64_t>(part);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

std::vector<std::string> lines_of(std::string_view text) {
  if (text.empty()) return {};
  return split(text.substr(0, text.size() - text.ends_with('\n')), '\n');
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text.append(i == 0 ? "" : between).append(parts[i]);
  return text;
}

}  // namespace attn::tool
