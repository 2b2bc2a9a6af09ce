#include "report/figure/svg.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "report/figure/text.hpp"

namespace attn::figure {

std::string fixed(double value, int decimals) {
  std::array<char, 400> buffer{};  // the largest double has 309 digits before the point
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals);
  return {buffer.data(), end.ptr};
}

std::string num(double value, int decimals) {
  if (!std::isfinite(value)) return "0";
  std::string text = fixed(value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string escaped(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr const char* entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string result;
  for (const char c : text) {
    const std::size_t at = special.find(c);
    result.append(at == std::string_view::npos ? std::string(1, c) : entities[at]);
  }
  return result;
}

Svg::Svg(double width, double height, std::string_view title) {
  const std::string w = num(width), h = num(height);
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"" + w + "\" height=\"" + h +
         "\" viewBox=\"0 0 " + w + " " + h + "\" font-family=\"sans-serif\" font-size=\"12\">\n";
  out_.append("<title>").append(escaped(clean(title))).append("</title>\n");
  add("rect", {{"width", width}, {"height", height}, {"fill", "#ffffff"}});
}

void Svg::start(std::string_view tag, Attributes attributes, Attributes more) {
  out_.append("<").append(tag);
  for (const Attributes& all : {attributes, more}) {
    for (const Attribute& a : all) out_.append(" ").append(a.name).append("=\"").append(escaped(a.value)).append("\"");
  }
}

void Svg::open(std::string_view tag, Attributes attributes) {
  start(tag, attributes);
  out_.append(">\n");
}

void Svg::close(std::string_view tag) { out_.append("</").append(tag).append(">\n"); }

void Svg::finish(std::string_view tag, std::string_view text, std::string_view hint) {
  if (text.empty() && hint.empty()) {
    out_.append("/>\n");
    return;
  }
  out_.append(">");
  if (!hint.empty()) out_.append("<title>").append(escaped(clean(hint))).append("</title>");
  out_.append(escaped(text)).append("</").append(tag).append(">\n");
}

void Svg::add(std::string_view tag, Attributes attributes, std::string_view text, std::string_view hint) {
  start(tag, attributes);
  finish(tag, text, hint);
}

void Svg::line(double x1, double y1, double x2, double y2, Attributes more, std::string_view hint) {
  start("line", {{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}}, more);
  finish("line", {}, hint);
}

void Svg::rect(double x, double y, double width, double height, Attributes more, std::string_view hint) {
  start("rect", {{"x", x}, {"y", y}, {"width", width}, {"height", height}}, more);
  finish("rect", {}, hint);
}

void Svg::text(double x, double y, std::string_view text, Attributes attributes) {
  start("text", {{"x", x}, {"y", y}}, attributes);
  const bool filled = std::ranges::find(attributes, "fill", &Attribute::name) != attributes.end();
  if (!filled) out_.append(" fill=\"").append(kInk).append("\"");
  out_.append(">").append(escaped(clean(text))).append("</text>\n");
}

std::string Svg::finish() {
  out_.append("</svg>\n");
  return std::move(out_);
}

}  // namespace attn::figure
