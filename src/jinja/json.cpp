// Values from JSON, and as text: Python's str() and repr(), and json.dumps().
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/utf8.hpp"
#include "io/json_object.hpp"
#include "jinja/strings.hpp"
#include "text/classes.hpp"

namespace attn::jinja {
namespace {

using Json = nlohmann::json;

class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(std::string_view text, const io::Origin& origin) : text_(text), origin_(origin) {}

  bool null() override { return add(none()); }
  bool boolean(bool value) override { return add({value}); }
  bool number_integer(std::int64_t value) override { return add({value}); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) beyond(std::to_string(value));
    return add({static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string& written) override {
    if (written.find_first_of(".eE") == std::string::npos) beyond(written);
    return add({value});
  }
  bool string(std::string& value) override { return add(text(std::move(value))); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool key(std::string& name) override {
    if (open_.back().entries.find(text(name)) != nullptr) io::fail_twice(name, origin_);
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    io::fail_json(text_, at, origin_);
  }

  Value result{};

 private:
  struct Open {
    bool object;
    std::string key;
    Dict entries;
    List items;
  };

  [[noreturn]] void beyond(const std::string& number) const {
    origin_.fail("integers of 64 bits", io::excerpt(number));
  }

  bool open(bool object) {
    if (open_.size() == 90) origin_.fail("JSON of at most 90 levels", "more");
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return add(done.object ? dict(std::move(done.entries)) : list(std::move(done.items)));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().object) {
      open_.back().entries.set(text(std::move(open_.back().key)), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::string_view text_;
  const io::Origin& origin_;
  std::vector<Open> open_;
};

std::string float_text(double x, bool json) {
  if (std::isnan(x)) return json ? "NaN" : "nan";
  if (std::isinf(x)) return std::string(x < 0 ? "-" : "") + (json ? "Infinity" : "inf");
  std::array<char, 400> buffer{};
  const double size = std::abs(x);
  const bool plain = x == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x, format).ptr);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

void append_hex(std::string& text, std::uint32_t code, int digits) {
  for (int i = digits - 1; i >= 0; --i) text.push_back("0123456789abcdef"[code >> (4 * i) & 15]);
}

// str.isprintable() of Python.
bool prints(std::uint32_t code) {
  using P = text::Property;
  constexpr text::Properties hidden = text::bit(P::cc) | text::bit(P::cf) | text::bit(P::co) | text::bit(P::cn) |
                                      text::bit(P::zs) | text::bit(P::zl) | text::bit(P::zp);
  return code == ' ' || (text::properties_of(code) & hidden) == 0;
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const std::string_view c : characters(text)) {
    const std::uint32_t code = first_character(c).code;
    if (c[0] == quote || c[0] == '\\') {
      out.append("\\").append(c);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out.append(code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
    } else if (prints(code)) {
      out.append(c);
    } else {
      out.append(code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U");
      append_hex(out, code, code < 0x100 ? 2 : code < 0x10000 ? 4 : 8);
    }
  }
  return out + quote;
}

std::string json_string(const std::string& text, bool ascii) { return Json(text).dump(-1, ' ', ascii); }

std::string json_key(const Value& key, const JsonStyle& style) {
  if (key.text()) return json_string(*key.text(), style.ascii);
  if (!real(key) && !key.is<None>()) failed("a key of JSON that is a " + kind_of(key));
  return std::string("\"").append(json_text(key, style)).append("\"");
}

// Items in brackets, each in a line of its own where the style has an indent.
template <class Items, class Write>
std::string block(std::string_view brackets, const Items& items, const JsonStyle& style, std::size_t level,
                  const Write& write) {
  std::string out(1, brackets[0]);
  const auto line = [&](std::size_t deep) {
    if (!style.lines) return;
    out.push_back('\n');
    for (std::size_t i = 0; i < deep; ++i) out.append(style.indent);
  };
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out.append(style.between);
    line(level + 1);
    out.append(write(item));
    charge(out.size() / 64 + 16);
  }
  if (!first) line(level);
  return out + brackets[1];
}

std::string repr_list(const Sequence& s) {
  const bool tuple = s.kind == Sequence::Kind::tuple;
  if (s.kind > Sequence::Kind::tuple) unsupported("a " + kind_of({std::make_shared<const Sequence>(s)}) + " as text");
  std::string out = block(tuple ? "()" : "[]", s.items, {}, 0, represented);
  if (tuple && s.items.size() == 1) out.back() = ',', out.push_back(')');
  return out;
}

}  // namespace

Value from_json(std::string_view json, const io::Origin& origin) {
  io::require_plain_json(json, origin);
  Reader reader(json, origin);
  Json::sax_parse(json, &reader);
  return std::move(reader.result);
}

std::string shown(const Value& value) {
  if (const std::string* s = value.text()) return *s;
  return value.is<Undefined>() ? "" : represented(value);
}

std::string represented(const Value& value) {
  if (const std::string* s = value.text())
    return value.safe() ? std::string("Markup(").append(quoted(*s)).append(")") : quoted(*s);
  if (value.is<Undefined>()) return "Undefined";
  if (value.is<None>()) return "None";
  if (const bool* b = value.get<bool>()) return *b ? "True" : "False";
  if (const std::int64_t* i = value.get<std::int64_t>()) return std::to_string(*i);
  if (const double* x = value.get<double>()) return float_text(*x, false);
  if (const Sequence* s = value.sequence()) return repr_list(*s);
  if (!value.dict()) unsupported("a " + kind_of(value) + " as text");
  return block("{}", value.dict()->entries(), {}, 0,
               [](const auto& entry) { return represented(entry.first) + ": " + represented(entry.second); });
}

std::string json_text(const Value& value, const JsonStyle& style, std::size_t level) {
  if (const std::string* s = value.text()) return json_string(*s, style.ascii);
  if (value.is<None>()) return "null";
  if (const bool* b = value.get<bool>()) return *b ? "true" : "false";
  if (const double* x = value.get<double>()) return float_text(*x, true);
  if (value.is<std::int64_t>()) return shown(value);
  const auto inner = [&](const Value& item) { return json_text(item, style, level + 1); };
  if (const Sequence* s = value.sequence(); s && s->kind <= Sequence::Kind::tuple) {
    return block("[]", s->items, style, level, inner);
  }
  if (!value.dict()) failed("a " + kind_of(value) + " as JSON");
  auto entries = value.dict()->entries();
  if (style.sorted) {
    std::ranges::stable_sort(entries, [](const auto& a, const auto& b) { return less(a.first, b.first); });
  }
  return block("{}", entries, style, level,
               [&](const auto& entry) { return json_key(entry.first, style) + style.after_key + inner(entry.second); });
}

}  // namespace attn::jinja
