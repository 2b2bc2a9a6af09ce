// formatted("{} of {:.2f}", …): the part of std::format that messages here need. Compilers bring the whole of it only
// from GCC 13 and clang 17 on.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attn::tool {

// A number or a text; the text has to outlive it.
class Formattable {
 public:
  template <std::signed_integral T>
  Formattable(T value) : value_(std::int64_t{value}) {}
  template <std::unsigned_integral T>
  Formattable(T value) : value_(std::uint64_t{value}) {}
  Formattable(double value) : value_(value) {}
  Formattable(std::string_view text) : value_(text) {}
  Formattable(const std::string& text) : value_(std::string_view(text)) {}
  Formattable(const char* text) : value_(std::string_view(text)) {}

  const auto& value() const noexcept { return value_; }

 private:
  std::variant<std::int64_t, std::uint64_t, double, std::string_view> value_;
};

// Text with `Count` fields, counted when it is compiled: {} or {:[<|>][0][width][.precision][x|e|f|g]}. No escapes.
template <std::size_t Count>
class Pattern {
 public:
  consteval Pattern(const char* text) : text_(text) {
    std::size_t fields = 0;
    for (const char c : text_) fields += c == '{' ? 1 : 0;
    if (fields != Count) throw "as many fields as values";
  }
  std::string_view text() const noexcept { return text_; }

 private:
  std::string_view text_;
};

std::string format_fields(std::string_view pattern, std::span<const Formattable> values);

template <class... Values>
std::string formatted(Pattern<sizeof...(Values)> pattern, const Values&... values) {
  return format_fields(pattern.text(), std::array<Formattable, sizeof...(Values)>{Formattable(values)...});
}

// "12.30": so many digits behind the point.
std::string fixed(double value, int digits);
// As %g writes it, with as many digits as it takes to read it back.
std::string shortest(double value);
// "1 thread", "2 threads".
std::string counted(std::int64_t count, std::string_view thing);
// Words in lines of so many columns, those below the first indented.
std::string wrapped(const std::vector<std::string>& words, std::size_t columns, std::size_t indent = 0);
// The number that the whole text is, or none.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}
// "4,8,32" as numbers, or nothing.
std::optional<std::vector<std::int64_t>> numbers_in(std::string_view text);
// The parts of a text between the places where the character stands: "a,b" is "a" and "b".
std::vector<std::string> split(std::string_view text, char at);
// Its words, between white space.
std::vector<std::string> words_of(std::string_view text);
// Its lines; the last one need not end.
std::vector<std::string> lines_of(std::string_view text);
std::string joined(const std::vector<std::string>& parts, std::string_view between);

}  // namespace attn::tool
