#include "jinja/strings.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "core/utf8.hpp"
#include "jinja/cases.hpp"
#include "text/classes.hpp"

namespace attn::jinja {
namespace {

// How a value is written in text % values and text.format(values).
struct Spec {
  char fill = ' ', align = 0, type = 's';
  bool plus = false;
  std::size_t width = 0;
  int precision = -1;

  // The rest of a specification, from [[fill]align][+][0][width][.precision][type]; unsupported() for any other.
  static Spec parse(std::string_view given, std::string_view types) {
    Spec spec;
    std::string_view rest = given;
    const auto number = [&] {
      std::size_t n = 0;
      for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9' && n < 10000; rest.remove_prefix(1)) {
        n = 10 * n + static_cast<std::size_t>(rest[0] - '0');
      }
      return n;
    };
    const auto skip = [&](char c) { return rest.starts_with(c) && (rest.remove_prefix(1), true); };
    constexpr std::string_view aligns = "<>^";
    if (rest.size() > 1 && aligns.find(rest[1]) != std::string_view::npos) spec.fill = rest[0], rest.remove_prefix(1);
    if (!rest.empty() && aligns.find(rest[0]) != std::string_view::npos) spec.align = rest[0], rest.remove_prefix(1);
    spec.plus = skip('+');
    if (skip('0')) spec.fill = '0', spec.align = '=';
    spec.width = number();
    if (skip('.')) spec.precision = static_cast<int>(number());
    if (!rest.empty() && types.find(rest[0]) != std::string_view::npos) spec.type = rest[0], rest.remove_prefix(1);
    if (!rest.empty() || spec.width >= 10000 || spec.precision >= 1000) {
      unsupported("the format \"" + std::string(given) + "\"");
    }
    return spec;
  }

  std::string padded(std::string body, bool number) const {
    const std::size_t size = length(body);
    if (size >= width) return body;
    const std::size_t missing = width - size;
    const char side = align != 0 ? align : number ? '>' : '<';
    const std::size_t left = side == '<' ? 0 : side == '^' ? missing / 2 : missing;
    const bool signs = side == '=' && number && (body[0] == '-' || body[0] == '+');
    body.insert(signs ? 1 : 0, left, fill);
    return body.append(missing - left, fill);
  }

  std::string write(const Value& value) const {
    std::int64_t whole_number = 0;
    std::string body;
    if (type == 'd' || type == 'f') {
      if (!is_number(value)) failed("a " + kind_of(value) + " where a format wants a number");
      if (type == 'd') {
        body = whole(value, whole_number) ? std::to_string(whole_number) : "";
        if (body.empty() || precision >= 0) unsupported("this format of a float as an integer");
      } else {
        std::array<char, 1400> buffer{};
        const int n = std::snprintf(buffer.data(), buffer.size(), "%.*f", precision < 0 ? 6 : precision, real(value));
        body.assign(buffer.data(), static_cast<std::size_t>(n));
      }
      if (plus && body[0] != '-') body.insert(0, 1, '+');
      return padded(body, true);
    }
    body = type == 'r' ? represented(value) : shown(value);
    if (precision >= 0) {
      std::string cut;
      const auto all = characters(body);
      for (std::size_t i = 0; i < std::min(all.size(), static_cast<std::size_t>(precision)); ++i) cut.append(all[i]);
      body = cut;
    }
    return padded(body, false);
  }
};

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
  return c.valid && (text::class_of(c.code) == text::Class::space || (c.code >= 0x1c && c.code <= 0x1f));
}

std::string_view stripped(std::string_view text, int sides, const std::string* chars) {
  const auto strips = [&](std::string_view c) { return chars ? chars->find(c) != std::string::npos : is_space(c); };
  charge(text.size() / 16);
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

std::string upper(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text)) out += upper_of(c);
  return out;
}

std::string lower(std::string_view text) {
  if (text.find("\u03a3") != std::string_view::npos) unsupported("a capital sigma in lower case");
  std::string out;
  for (const std::string_view c : characters(text)) out += lower_of(c);
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = first_character(text).length;
  return title_of(text.substr(0, first)) + lower(text.substr(first));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string out;
  charge(text.size());
  const auto take = [&](std::size_t n) { out.append(text.substr(0, n)), text.remove_prefix(n); };
  if (from.empty()) {
    for (; count != 0; --count) {
      charge(to.size() + 8);
      out.append(to);
      if (text.empty()) break;
      take(first_character(text).length);
    }
    return out.append(text);
  }
  for (; count != 0; --count) {
    const std::size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    take(at);
    charge(to.size());
    out.append(to);
    text.remove_prefix(from.size());
  }
  return out.append(text);
}

std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends) {
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
    lines.push_back(text.substr(begin, (keep_ends ? after : end) - begin));
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
  const List* tuple = given.list(Sequence::Kind::tuple);
  const List values = tuple ? *tuple : List{given};
  std::size_t next = 0;
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find('%');
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
    const std::size_t end = text.find_first_not_of("0123456789.+-");
    if (end == std::string_view::npos) failed("a format without its end");
    std::string spec(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
    if (spec == "%") {
      out.push_back('%');
      continue;
    }
    if (std::string_view("sdirf").find(spec.back()) == std::string_view::npos) unsupported("the format %" + spec);
    if (spec.back() == 'i') spec.back() = 'd';
    if (spec.front() != '-' && spec.front() != '0') spec.insert(0, 1, '>');
    if (spec.front() == '-') spec.front() = '<';
    if (next == values.size()) failed("a format with fewer values than it has places");
    out.append(Spec::parse(spec, "sdrf").write(values[next++]));
    charge(out.size() / 64 + 16);
  }
  // Python takes what has items by keys for a dict whose values need not be used.
  const bool keyed =
      given.dict() || given.is<Undefined>() || (given.sequence() && given.sequence()->kind <= Sequence::Kind::range);
  if (next < values.size() && (tuple || !keyed)) failed("a format with more values than places");
  return out;
}

std::string format(std::string_view text, const Arguments& given) {
  std::string out;
  std::optional<bool> automatic;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && text.substr(i + 1).starts_with(c)) {
      out.push_back(text[++i - 1]);
      continue;
    }
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (c == '}' || end == std::string_view::npos) failed("a format with a single brace");
    const std::string_view field = text.substr(i + 1, end - i - 1);
    const std::size_t name_end = std::min(field.find_first_of("!:"), field.size());
    const std::string name(field.substr(0, name_end));
    std::string_view spec = field.substr(name_end);
    const bool repr = spec.starts_with("!r");
    if (spec.starts_with('!') && !repr && !spec.starts_with("!s")) unsupported("the format " + std::string(field));
    if (spec.starts_with('!')) spec.remove_prefix(2);
    if (!spec.empty()) spec.remove_prefix(1);
    if (name.find_first_of(".[{") != std::string::npos) unsupported("the format {" + std::string(field) + "}");
    const bool numbered = name.empty() || name.find_first_not_of("0123456789") == std::string::npos;
    const Value* value = nullptr;
    if (numbered) {
      if (std::exchange(automatic, name.empty()).value_or(name.empty()) != name.empty()) {
        failed("a format with numbered places and others");
      }
      const std::size_t place = name.empty() ? next++ : name.size() < 6 ? std::stoul(name) : given.values.size();
      if (place < given.values.size()) value = &given.values[place];
    } else {
      const auto at = std::ranges::find(given.named, name, [](const auto& entry) { return entry.first; });
      if (at != given.named.end()) value = &at->second;
    }
    if (!value) failed("a format with a place {" + name + "} and no value for it");
    Spec parsed = Spec::parse(spec, "sdf");
    if (parsed.type == 's' && is_number(*value) && !spec.empty() && !repr) {
      const bool integral = value->is<std::int64_t>();
      if (!integral || parsed.precision >= 0 || spec.ends_with('s')) unsupported("the format " + std::string(field));
      parsed.type = 'd';
    }
    if (repr) parsed.type = 'r';
    if (value->is<None>() && !spec.empty()) failed("a format of None");
    out.append(parsed.write(*value));
    charge(out.size() / 64 + 16);
    i = end;
  }
  return out;
}

}  // namespace attn::jinja
