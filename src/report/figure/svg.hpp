// SVG 1.1 as text: elements, attributes, numbers. Nothing here knows what is drawn.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace attn::figure {

// With all its decimals: 12.50.
std::string fixed(double value, int decimals);
// At most `decimals` of them, no trailing zeros, "." in every locale: 12.5, 3, 0.07. Not a number: "0".
std::string num(double value, int decimals = 2);
// & < > " and ' as entities. The text must be UTF-8 that XML allows: see clean() in text.hpp.
std::string escaped(std::string_view text);

struct Attribute {
  Attribute(std::string_view key, std::string_view text) : name(key), value(text) {}
  Attribute(std::string_view key, const char* text) : name(key), value(text) {}
  Attribute(std::string_view key, double number) : name(key), value(num(number)) {}

  std::string_view name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

inline constexpr double kMargin = 16;             // around a figure, in points
inline constexpr const char* kInk = "#222222";    // text, axes' names
inline constexpr const char* kFaint = "#666666";  // ticks, captions
inline constexpr const char* kRule = "#e4e4e4";   // grid, frames

class Svg {
 public:
  // On white, in points of 1/96 inch; `title` is what a screen reader says.
  Svg(double width, double height, std::string_view title);

  void open(std::string_view tag, Attributes attributes = {});
  void close(std::string_view tag);
  // <tag …/>, or with text inside; `hint` is what the mouse finds over it.
  void add(std::string_view tag, Attributes attributes, std::string_view text = {}, std::string_view hint = {});
  // The same of two shapes, with what is more than where they lie.
  void line(double x1, double y1, double x2, double y2, Attributes more, std::string_view hint = {});
  void rect(double x, double y, double width, double height, Attributes more, std::string_view hint = {});
  // Text of one line, cleaned of what XML does not allow.
  void text(double x, double y, std::string_view text, Attributes attributes = {});

  // The whole document; the object is empty afterwards.
  std::string finish();

 private:
  void start(std::string_view tag, Attributes attributes, Attributes more = {});
  void finish(std::string_view tag, std::string_view text, std::string_view hint);
  std::string out_;
};

}  // namespace attn::figure
