#include "jinja/strings.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "text/classes.hpp"

namespace attn::jinja {
namespace {

// Letters that are `step` apart from `first` to `last`, and what makes each a small one. Python knows more.
struct Letters {
  std::uint32_t first, last, step, added;
};
constexpr Letters kLetters[] = {
    {'A', 'Z', 1, 32},     {0xc0, 0xd6, 1, 32},   {0xd8, 0xde, 1, 32},   {0x100, 0x12e, 2, 1},  {0x132, 0x136, 2, 1},
    {0x139, 0x147, 2, 1},  {0x14a, 0x176, 2, 1},  {0x179, 0x17d, 2, 1},  {0x391, 0x3a1, 1, 32}, {0x3a3, 0x3ab, 1, 32},
    {0x400, 0x40f, 1, 80}, {0x410, 0x42f, 1, 32}, {0x1ea0, 0x1efe, 2, 1}};

std::string with_case(std::string_view all, bool upper) {
  std::string out;
  for (const std::string_view c : characters(all)) {
    const std::uint32_t code = first_character(c).code;
    const auto letters = [&](bool capital) {
      return std::ranges::find_if(kLetters, [&](const Letters& l) {
        const std::uint32_t at = capital ? code : code - l.added;
        return at >= l.first && at <= l.last && (at - l.first) % l.step == 0;
      });
    };
    const auto *capital = letters(true), *small = letters(false), *none = std::end(kLetters);
    using P = text::Property;
    constexpr text::Properties cased = text::bit(P::lu) | text::bit(P::ll) | text::bit(P::lt) | text::bit(P::nl);
    const bool other = (text::properties_of(code) & cased) != 0 || code == 0x345 || (code >= 0x24b6 && code <= 0x24e9);
    if ((capital == none && small == none && other && code >= 0x80) || (code == 0x3a3 && !upper)) {
      unsupported("the case of the character " + std::string(c));
    }
    append_utf8(out, upper && small != none      ? code - small->added
                     : !upper && capital != none ? code + capital->added
                                                 : code);
  }
  return out;
}

}  // namespace

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  charge(text.size());
  for (; !text.empty(); text.remove_prefix(all.back().size())) {
    all.push_back(text.substr(0, first_character(text).length));
  }
  return all;
}

std::size_t length(std::string_view text) {
  charge(text.size() / 16);
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_space(std::string_view character) {
  const Character c = first_character(character);
  return c.valid && (text::has(c.code, text::Property::space) || (c.code >= 0x1c && c.code <= 0x1f));
}

std::string_view stripped(std::string_view text, int sides, const std::string* chars) {
  const auto strips = [&](std::string_view c) { return chars ? chars->find(c) != std::string::npos : is_space(c); };
  charge_search(text, chars ? *chars : "");
  while ((sides & kLeft) && !text.empty()) {
    const std::size_t size = first_character(text).length;
    if (!strips(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while ((sides & kRight) && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xc0) == 0x80) --at;
    if (!strips(text.substr(at))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string upper(std::string_view text) { return with_case(text, true); }
std::string lower(std::string_view text) { return with_case(text, false); }

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = first_character(text).length;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string titled(std::string_view text, bool as_python) {
  std::string out;
  bool begins = true;
  for (const std::string_view c : characters(text)) {
    const std::string large = upper(c), small = lower(c);
    const bool parts = as_python ? large == small : is_space(c) || std::string_view("-({[<").find(c) != c.npos;
    if (as_python && parts && static_cast<unsigned char>(c[0]) >= 0x80) unsupported("str.title() of " + std::string(c));
    out += begins ? large : small;
    begins = parts;
  }
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string out;
  charge(text.size()), charge_search(text, from);
  if (from.empty()) unsupported("the replacement of an empty text");
  for (; count != 0; --count) {
    const std::size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    charge(to.size());
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  const std::string ends = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029";
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin, after = begin;
    while (after < text.size() && after == end) {
      const std::size_t size = first_character(text.substr(end)).length;
      const bool ends_here = ends.find(text.substr(end, size)) != std::string::npos;
      after = end + size;
      if (!ends_here) end = after;
      if (ends_here && text.substr(end, 2) == "\r\n") ++after;
    }
    lines.push_back(text.substr(begin, end - begin));
    begin = after;
  }
  charge(text.size());
  return lines;
}

std::string escaped_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    constexpr std::string_view plain = "&<>\"'";
    constexpr std::string_view names[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const std::size_t at = plain.find(c);
    at == std::string_view::npos ? out.push_back(c) : static_cast<void>(out.append(names[at]));
  }
  return out;
}

std::string percent(std::string_view text, const Value& given) {
  const bool tuple = given.list(Sequence::Kind::tuple);
  const List values = tuple ? items_of(given) : List{given};
  std::size_t next = 0;
  std::string out;
  for (std::size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%')) {
    const std::string type(text.substr(at, 2));
    out.append(text.substr(0, at));
    text.remove_prefix(at + type.size());
    if (type != "%%" && type != "%s" && type != "%d") unsupported("the format " + type);
    if (type != "%%" && next == values.size()) failed("a format with fewer values than it has places");
    const auto number = type == "%d" ? whole(values[next]) : 0;
    if (!number) unsupported("the format %d of a " + kind_of(values[next]));
    out += type == "%%" ? "%" : type == "%d" ? std::to_string(*number) : shown(values[next]);
    next += type == "%%" ? 0 : 1;
    charge(out.size() / 64 + 16);
  }
  // Python takes what has items by keys for a dict whose values need not be used.
  const bool keyed = given.dict() || given.is<Undefined>() || given.row();
  if (next < values.size() && (tuple || !keyed)) failed("a format with more values than places");
  return out.append(text);
}

std::string format(std::string_view text, const Arguments& given) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    if (text.substr(i + 1).starts_with(c)) {
      out.push_back(text[i++]);
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (c == '}' || end == std::string_view::npos) failed("a format with a single brace");
    std::string name(text.substr(i + 1, end - i - 1));
    const bool integer = name.ends_with(":d");
    if (integer) name.resize(name.size() - 2);
    if (name.find_first_of("0123456789!:.[{") != std::string::npos) unsupported("the format {" + name + "}");
    const auto named = std::ranges::find(given.named, name, [](const auto& entry) { return entry.first; });
    if (name.empty() ? next == given.values.size() : named == given.named.end()) {
      failed("a format with a place {" + name + "} and no value for it");
    }
    const Value& value = name.empty() ? given.values[next++] : named->second;
    if (integer && !value.is<std::int64_t>()) unsupported("the format {:d} of a " + kind_of(value));
    out += shown(value);
    charge(out.size() / 64 + 16 + given.named.size());
    i = end;
  }
  return out;
}

}  // namespace attn::jinja
