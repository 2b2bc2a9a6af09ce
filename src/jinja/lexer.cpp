#include "jinja/lexer.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

constexpr std::string_view kNameStart = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

std::string with_plain_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && source.substr(i + 1).starts_with('\n')) continue;
    text.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_lines(source)), rest_(source_) {}

  std::vector<Token> read() {
    while (!rest_.empty()) {
      const std::size_t at = next_tag();
      const std::string_view before = rest_.substr(0, at);
      if (at == rest_.size()) {
        add(Token::Kind::data, before);
        break;
      }
      const char kind = rest_[at + 1];
      data(before, at + 2, kind != '{');
      if (kind == '#') {
        read_comment();
      } else {
        add(kind == '{' ? Token::Kind::begin_print : Token::Kind::begin_block, {});
        while (read_token(kind == '{' ? "}}" : "%}")) {
          const bool first = tokens_.size() > 1 && tokens_[tokens_.size() - 2].kind == Token::Kind::begin_block;
          if (first && tokens_.back().text == "raw") unsupported("the tag raw in line " + std::to_string(line_));
        }
      }
    }
    add(Token::Kind::end, {});
    return std::move(tokens_);
  }

 private:
  // The next of {{, {% and {#.
  std::size_t next_tag() const {
    std::size_t at = rest_.find('{');
    while (at != rest_.npos && (at + 1 >= rest_.size() || std::string_view("{%#").find(rest_[at + 1]) == rest_.npos)) {
      at = rest_.find('{', at + 1);
    }
    return std::min(at, rest_.size());
  }

  void take(std::size_t n) {
    line_ += static_cast<std::size_t>(std::ranges::count(rest_.substr(0, n), '\n'));
    starts_line_ = n > 0 ? rest_[n - 1] == '\n' : starts_line_;
    rest_.remove_prefix(n);
  }

  void add(Token::Kind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }

  // The text before a tag, whose first `end` bytes of the rest are taken with its sign.
  void data(std::string_view before, std::size_t end, bool is_block) {
    const char sign = rest_.size() > end ? rest_[end] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    if (sign == '-') {
      before = stripped(before, kRight);
    } else if (sign != '+' && is_block) {
      const std::size_t begin = before.rfind('\n') + 1;
      const bool blank = stripped(before.substr(begin), kLeft).empty();
      if (blank && (begin > 0 || starts_line_)) before = before.substr(0, begin);
    }
    if (!before.empty()) add(Token::Kind::data, before);
    take(end + (has_sign ? 1 : 0));
  }

  // The bytes of a tag's end at the beginning of the rest, with what it strips; 0 where there is none.
  std::size_t end_size(std::string_view end, bool trims) const {
    std::string_view at = rest_;
    const char sign = at.empty() ? ' ' : at[0];
    if (sign == '-' || (sign == '+' && trims)) at.remove_prefix(1);
    if (!at.starts_with(end)) return 0;
    at.remove_prefix(end.size());
    if (sign == '-') at = stripped(at, kLeft);
    if (sign != '-' && sign != '+' && trims && at.starts_with('\n')) at.remove_prefix(1);
    return rest_.size() - at.size();
  }

  void read_comment() {
    for (; !rest_.empty(); take(1)) {
      if (const std::size_t size = end_size("#}", true)) return take(size);
    }
    failed_at(line_, "a comment without its end");
  }

  // False after the tag's end.
  bool read_token(std::string_view end) {
    const bool block = end == "%}";
    if (const std::size_t size = braces_.empty() ? end_size(end, block) : 0) {
      add(block ? Token::Kind::end_block : Token::Kind::end_print, {});
      take(size);
      return false;
    }
    if (rest_.empty()) failed_at(line_, "a tag without its end");
    const std::size_t blank = rest_.size() - stripped(rest_, kLeft).size();
    if (blank > 0) {
      take(blank);
    } else if (kNameStart.find(rest_[0]) != kNameStart.npos) {
      std::size_t size = 0;
      while (size < rest_.size() && (kNameStart.find(rest_[size]) != kNameStart.npos || is_digit(size))) ++size;
      emit(Token::Kind::name, size);
    } else if (is_digit(0)) {
      read_number();
    } else if (rest_[0] == '\'' || rest_[0] == '"') {
      read_string();
    } else {
      read_sign();
    }
    return true;
  }

  bool is_digit(std::size_t at) const { return at < rest_.size() && rest_[at] >= '0' && rest_[at] <= '9'; }

  void emit(Token::Kind kind, std::size_t size) {
    add(kind, rest_.substr(0, size));
    take(size);
  }

  void read_number() {
    const auto digits = [&](std::size_t at) {
      while (is_digit(at)) ++at;
      return at;
    };
    const std::size_t whole_size = digits(0);
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == Token::Kind::sign && tokens_.back().text == ".";
    const bool fraction = rest_.substr(whole_size).starts_with('.') && is_digit(whole_size + 1) && !after_dot;
    const std::size_t size = fraction ? digits(whole_size + 1) : whole_size;
    const bool letter = size < rest_.size() && kNameStart.find(rest_[size]) != kNameStart.npos;
    if (letter || (!fraction && size > 1 && rest_[0] == '0')) {
      unsupported("a number such as " + std::string(rest_.substr(0, size + 1)));
    }
    emit(fraction ? Token::Kind::number : Token::Kind::integer, size);
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
    add(Token::Kind::string, text);
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
    for (const std::string_view sign : two) {
      if (rest_.starts_with(sign)) return emit(Token::Kind::sign, 2);
    }
    const char c = rest_[0];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      const auto size = first_character(rest_).length;
      if (static_cast<unsigned char>(c) >= 0x80) unsupported("a name with " + std::string(rest_.substr(0, size)));
      failed_at(line_, std::string("the character ") + c);
    }
    if (const std::size_t at = open.find(c); at != open.npos) braces_.push_back(close[at]);
    if (close.find(c) != close.npos) {
      if (!braces_.ends_with(c)) failed_at(line_, std::string("a bracket ") + c + " that none opens");
      braces_.pop_back();
    }
    emit(Token::Kind::sign, 1);
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
