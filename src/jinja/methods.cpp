// Methods of Python's values that the sandbox lets templates call, and a loop's attributes.
#include <algorithm>

#include "core/utf8.hpp"
#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

const std::string& own(const Call& c) { return *c.self.text(); }

const std::string& needed_text(const Call& c, std::size_t i) {
  const std::string* s = c.slots[i] ? c.slots[i]->text() : nullptr;
  if (!s) failed("an argument of a method of str that is a " + kind_of(c.value(i)));
  return *s;
}

Value strip(Call& c, int sides) {
  return text(std::string(stripped(own(c), sides, c.has(0) ? &needed_text(c, 0) : nullptr)));
}

Value words(std::string_view rest) {
  List parts;
  for (rest = stripped(rest, kLeft); !rest.empty(); rest = stripped(rest, kLeft)) {
    std::size_t size = 0;
    while (size < rest.size() && !is_space(rest.substr(size))) size += first_character(rest.substr(size)).length;
    parts.push_back(text(std::string(rest.substr(0, size))));
    rest.remove_prefix(size);
  }
  return list(std::move(parts));
}

Value split(Call& c, bool from_right) {
  std::int64_t most = c.integer(1, -1);
  std::string_view rest = own(c);
  charge(rest.size());
  if (!c.has(0) && most >= 0) unsupported("a split at white space that ends after some parts");
  if (!c.has(0)) return words(rest);
  const std::string& between = needed_text(c, 0);
  if (between.empty()) failed("a split by an empty text");
  List parts;
  for (; most != 0; --most) {
    const std::size_t at = from_right ? rest.rfind(between) : rest.find(between);
    if (at == std::string_view::npos) break;
    const std::string_view before = rest.substr(0, at), after = rest.substr(at + between.size());
    parts.push_back(text(std::string(from_right ? after : before)));
    rest = from_right ? before : after;
  }
  parts.push_back(text(std::string(rest)));
  if (from_right) std::ranges::reverse(parts);
  return list(std::move(parts));
}

Value find(Call& c, bool last) {
  charge(own(c).size());
  const std::size_t at = last ? own(c).rfind(needed_text(c, 0)) : own(c).find(needed_text(c, 0));
  return at == std::string::npos ? Value{std::int64_t{-1}} : integer(length(own(c).substr(0, at)));
}

Value has_side(Call& c, bool end) {
  const List* several = c.slots[0]->list(Sequence::Kind::tuple);
  return boolean(std::ranges::any_of(several ? *several : List{*c.slots[0]}, [&](const Value& one) {
    if (!one.text()) failed("a side of a text that is a " + kind_of(one));
    return end ? own(c).ends_with(*one.text()) : own(c).starts_with(*one.text());
  }));
}

Value count(Call& c) {
  const std::string& what = needed_text(c, 0);
  charge(own(c).size());
  if (what.empty()) return integer(length(own(c)) + 1);
  std::size_t n = 0;
  for (std::size_t at = own(c).find(what); at != std::string::npos; at = own(c).find(what, at + what.size())) ++n;
  return integer(n);
}

Value join(Call& c) {
  const List all = items_of(*c.slots[0]);
  for (const Value& one : all) {
    if (!one.text()) failed("a join of a " + kind_of(one));
    if (one.safe()) unsupported("the method join of a safe text");
  }
  return text(joined(all, own(c)));
}

Value without_side(Call& c, bool end) {
  const std::string& what = needed_text(c, 0);
  std::string_view all = own(c);
  if (!end && all.starts_with(what)) all.remove_prefix(what.size());
  if (end && all.ends_with(what)) all.remove_suffix(what.size());
  return text(std::string(all));
}

Value lines(Call& c) {
  List all;
  for (const std::string_view line : lines_of(own(c))) all.push_back(text(std::string(line)));
  return list(std::move(all));
}

constexpr Builtin kText[] = {
    {"capitalize", "/", [](Call& c) { return text(capitalized(own(c))); }},
    {"count", "/ sub start! end!", count},
    {"endswith", "/ suffix start! end!", [](Call& c) { return has_side(c, true); }},
    {"find", "/ sub start! end!", [](Call& c) { return find(c, false); }},
    {"format", "*", [](Call& c) { return text(format(own(c), c.rest)); }},
    {"join", "/ iterable", join},
    {"lower", "/", [](Call& c) { return text(lower(own(c))); }},
    {"lstrip", "/ chars?", [](Call& c) { return strip(c, kLeft); }},
    {"removeprefix", "/ prefix", [](Call& c) { return without_side(c, false); }},
    {"removesuffix", "/ suffix", [](Call& c) { return without_side(c, true); }},
    {"replace", "/ old new count?",
     [](Call& c) { return text(replaced(own(c), needed_text(c, 0), needed_text(c, 1), c.integer(2, -1))); }},
    {"rfind", "/ sub start! end!", [](Call& c) { return find(c, true); }},
    {"rsplit", "sep? maxsplit?", [](Call& c) { return split(c, true); }},
    {"rstrip", "/ chars?", [](Call& c) { return strip(c, kRight); }},
    {"split", "sep? maxsplit?", [](Call& c) { return split(c, false); }},
    {"splitlines", "keepends!", lines},
    {"startswith", "/ prefix start! end!", [](Call& c) { return has_side(c, false); }},
    {"strip", "/ chars?", [](Call& c) { return strip(c, kBoth); }},
    {"title", "/", [](Call& c) { return text(titled(own(c), true)); }},
    {"upper", "/", [](Call& c) { return text(upper(own(c))); }},
};

Value view(Call& c, Sequence::Kind kind) {
  List all = pairs_of(*c.self.dict());
  for (Value& pair : all) {
    if (kind != Sequence::Kind::items) pair = Value(pair.sequence()->items[kind == Sequence::Kind::keys ? 0 : 1]);
  }
  return list(std::move(all), kind);
}

Value get(Call& c) {
  key_of(*c.slots[0]);
  const Value* found = c.self.dict()->find(*c.slots[0]);
  return found ? *found : c.value(1);
}

constexpr Builtin kDict[] = {
    {"get", "/ key default?", get},
    {"items", "/", [](Call& c) { return view(c, Sequence::Kind::items); }},
    {"keys", "/", [](Call& c) { return view(c, Sequence::Kind::keys); }},
    {"values", "/", [](Call& c) { return view(c, Sequence::Kind::values); }},
};

std::string_view lacking_of(const Value& value) {
  if (value.text()) {
    return " casefold center encode expandtabs format_map index isalnum isalpha isascii isdecimal isdigit isidentifier "
           "islower isnumeric isprintable isspace istitle isupper ljust maketrans partition rindex rjust rpartition "
           "swapcase translate zfill ";
  }
  if (is_number(value)) {
    return " real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "
           "is_integer hex fromhex ";
  }
  return value.dict()       ? " copy fromkeys "
         : value.sequence() ? " copy count index start stop step isdisjoint mapping "
                            : "";
}

// The sandbox lets nobody change a list or a dict.
std::string_view changing_of(const Value& value) {
  if (value.dict()) return " clear pop popitem setdefault update ";
  return value.list(Sequence::Kind::list) ? " append clear extend insert pop remove reverse sort " : "";
}

std::optional<Value> of_loop(const std::shared_ptr<Loop>& loop, const std::string& name) {
  const std::size_t at = loop->at, size = loop->items.size();
  if (name == "index") return integer(at + 1);
  if (name == "index0") return integer(at);
  if (name == "revindex") return integer(size - at);
  if (name == "revindex0") return integer(size - at - 1);
  if (name == "first") return boolean(at == 0);
  if (name == "last") return boolean(at + 1 == size);
  if (name == "length") return integer(size);
  if (name == "previtem") return at > 0 ? loop->items[at - 1] : undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < size ? loop->items[at + 1] : undefined("there is no next item");
  if (listed("changed cycle depth depth0", name)) unsupported("loop." + name);
  return {};
}

}  // namespace

std::optional<Value> method(const Value& value, const std::string& name) {
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return of_loop(*loop, name);
  if (listed(lacking_of(value), name)) unsupported("the method " + name + " of a " + kind_of(value));
  if (listed(changing_of(value), name)) {
    return function(name, [value](Arguments&) -> Value {
      failed("a change of a " + kind_of(value) + ", which the sandbox forbids");
    });
  }
  const auto all = value.text() ? std::span<const Builtin>(kText) : std::span(kDict).first(value.dict() ? 4 : 0);
  const Builtin* own = found(all, name);
  if (!own) return {};
  if (value.safe()) unsupported("the method " + name + " of a safe text");
  return function(name, [value, own](Arguments& given) { return call(*own, value, given); });
}

}  // namespace attn::jinja
