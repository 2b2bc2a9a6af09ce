#include "jinja/lexer.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "jinja/strings.hpp"
#include "jinja/template.hpp"

namespace attn::jinja {
namespace {

bool among(std::string_view all, char c) { return all.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string with_plain_lines(std::string_view source) {
  std::string text;
  for (std::size_t at = 0; (at = source.find('\r')) != source.npos;) {
    text.append(source.substr(0, at)).append("\n");
    source.remove_prefix(at + (source.substr(at + 1).starts_with('\n') ? 2 : 1));
  }
  text.append(source);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
  using Kind = Token::Kind;

 public:
  explicit Lexer(std::string_view source) : source_(with_plain_lines(source)), rest_(source_) {}

  std::vector<Token> read() {
    while (!rest_.empty()) {
      std::size_t at = rest_.find('{');
      while (at < rest_.size() && !among("{%#", next(at + 1))) at = rest_.find('{', at + 1);
      data(std::min(at, rest_.size()));
      if (rest_.empty()) break;
      if (const std::size_t size = tag_size(rest_, "raw")) {
        take_raw(size);
        continue;
      }
      const std::string_view tag = rest_.substr(0, 2), end = tag == "{{" ? "}}" : tag == "{%" ? "%}" : "#}";
      const bool comment = tag == "{#";
      if (!comment) add(Kind::sign, tag);
      take(2 + (next(2) == '-' || next(2) == '+'));
      std::size_t size = 0;
      while ((size = braces_.empty() ? end_size(rest_, end) : 0) == 0) {
        if (rest_.empty()) failed_at(line_, comment ? "a comment without its end" : "a tag without its end");
        comment ? take(1) : read_token();
      }
      if (!comment) add(Kind::sign, end);
      take(size);
    }
    add(Kind::end, {});
    return std::move(tokens_);
  }

 private:
  char next(std::size_t at) const { return at < rest_.size() ? rest_[at] : '\0'; }

  void take(std::size_t n) {
    line_ += static_cast<std::size_t>(std::ranges::count(rest_.substr(0, n), '\n'));
    starts_line_ = n > 0 ? rest_[n - 1] == '\n' : starts_line_;
    rest_.remove_prefix(n);
  }

  void add(Kind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }

  void emit(Kind kind, std::size_t size) {
    add(kind, rest_.substr(0, size));
    take(size);
  }

  // The text before a tag, which begins after `size` bytes.
  void data(std::size_t size) {
    std::string_view before = rest_.substr(0, size);
    if (next(size + 2) == '-') {
      before = stripped(before, kRight);
    } else if (size < rest_.size() && next(size + 1) != '{' && next(size + 2) != '+') {
      const std::size_t begin = before.rfind('\n') + 1;
      const bool blank = stripped(before.substr(begin), kLeft).empty();
      if (blank && (begin > 0 || starts_line_)) before = before.substr(0, begin);
    }
    if (!before.empty()) add(Kind::data, before);
    take(size);
  }

  // The bytes of a tag's end at the beginning of `in`, with what it strips; 0 where there is none.
  static std::size_t end_size(std::string_view in, std::string_view end, bool plus = true, bool line = true) {
    const bool trims = end != "}}";
    const char sign = in.empty() ? '\0' : in[0];
    std::string_view at = in.substr(sign == '-' || (sign == '+' && trims && plus));
    if (!at.starts_with(end)) return 0;
    at.remove_prefix(end.size());
    if (sign == '-') at = stripped(at, kLeft);
    if (sign != '-' && sign != '+' && trims && line && at.starts_with('\n')) at.remove_prefix(1);
    return in.size() - at.size();
  }

  // The bytes of the tag {% raw %} or {% endraw %} at the beginning of `in`, with what it strips; 0 where there is
  // another. The first takes no + at its end, and strips no line end.
  static std::size_t tag_size(std::string_view in, std::string_view name) {
    if (!in.starts_with("{%")) return 0;
    std::string_view at = in.substr(2);
    if (!at.empty() && among("-+", at[0])) at.remove_prefix(1);
    at = stripped(at, kLeft);
    if (!at.starts_with(name)) return 0;
    at = stripped(at.substr(name.size()), kLeft);
    const bool ends = name != "raw";
    const std::size_t size = end_size(at, "%}", ends, ends);
    return size == 0 ? 0 : in.size() - at.size() + size;
  }

  // Text as it stands, whatever it looks like, between a tag of so many bytes and {% endraw %}.
  void take_raw(std::size_t begin) {
    const std::size_t line = line_;
    take(begin);
    if (rest_.empty()) return;  // Jinja asks for no end then
    std::size_t at = rest_.find("{%");
    while (at < rest_.size() && tag_size(rest_.substr(at), "endraw") == 0) at = rest_.find("{%", at + 1);
    if (at > rest_.size()) failed_at(line, "the tag raw without its end");
    data(at);
    take(tag_size(rest_, "endraw"));
  }

  void read_token() {
    if (const std::size_t blank = rest_.size() - stripped(rest_, kLeft).size()) return take(blank);
    if (is_digit(next(0))) return read_number();
    if (among("'\"", next(0))) return read_string();
    if (!begins_name(next(0))) return read_sign();
    std::size_t size = 1;
    while (begins_name(next(size)) || is_digit(next(size))) ++size;
    emit(Kind::name, size);
  }

  void read_number() {
    std::size_t size = 0;
    while (is_digit(next(size))) ++size;
    const bool after_dot = tokens_.back().kind == Kind::sign && tokens_.back().text == ".";
    const bool fraction = next(size) == '.' && is_digit(next(size + 1)) && !after_dot;
    if (fraction) ++size;
    while (is_digit(next(size))) ++size;
    if (begins_name(next(size)) || (!fraction && size > 1 && next(0) == '0')) {
      unsupported("a number such as " + std::string(rest_.substr(0, size + 1)));
    }
    emit(fraction ? Kind::number : Kind::integer, size);
  }

  void read_string() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_[0]) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) failed_at(line_, "a string without its end");
    std::string text;
    for (std::string_view in = rest_.substr(1, end - 1); !in.empty();) {
      if (in[0] != '\\') {
        text.push_back(in[0]), in.remove_prefix(1);
      } else {
        unescape(in, text);
      }
    }
    add(Kind::string, text);
    take(end + 1);
  }

  // As Python's; one that it does not know stays.
  void unescape(std::string_view& in, std::string& text) const {
    constexpr std::string_view letters = "nrtfbva\\'\"", plain = "\n\r\t\f\b\v\a\\'\"";
    const char c = in[1];
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (const std::size_t at = letters.find(c); at != letters.npos) {
      text.push_back(plain[at]);
    } else if (digits > 0) {
      const std::string hex(in.substr(2, digits));
      if (hex.size() < digits || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) {
        failed_at(line_, "an escape without its digits");
      }
      const auto code = static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16));
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) failed_at(line_, "an escape that is no character");
      append_utf8(text, code);
    } else if (c == 'N' || (c >= '0' && c <= '7')) {
      unsupported("the escape \\" + std::string(1, c) + " in a string");
    } else if (c != '\n') {
      text.append(in.substr(0, 2));
    }
    in.remove_prefix(std::min(in.size(), 2 + digits));
  }

  void read_sign() {
    constexpr std::string_view two[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view open = "([{", close = ")]}";
    if (std::ranges::count(two, rest_.substr(0, 2)) > 0) return emit(Kind::sign, 2);
    const char c = rest_[0];
    if (!among("+-/*%~[](){}><=.:|,;", c)) {
      const auto size = first_character(rest_).length;
      if (static_cast<unsigned char>(c) >= 0x80) unsupported("a name with " + std::string(rest_.substr(0, size)));
      failed_at(line_, std::string("the character ") + c);
    }
    if (const std::size_t at = open.find(c); at != open.npos) braces_.push_back(close[at]);
    if (among(close, c)) {
      if (!braces_.ends_with(c)) failed_at(line_, std::string("a bracket ") + c + " that none opens");
      braces_.pop_back();
    }
    emit(Kind::sign, 1);
  }

  std::string source_, braces_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  std::size_t line_ = 1;
  bool starts_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).read(); }

void failed_at(std::size_t line, const std::string& why) { failed(why + " in line " + std::to_string(line)); }

}  // namespace attn::jinja
