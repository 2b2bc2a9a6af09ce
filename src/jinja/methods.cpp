// Methods of Python's values that the sandbox lets templates call, and a loop's attributes.
#include <algorithm>

#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

const std::string& own(const Call& c) { return *c.self.text(); }
Value same_kind(const Call& c, std::string_view part) { return text(std::string(part), c.self.safe()); }

const std::string& needed_text(const Call& c, std::size_t i) {
  const std::string* s = c.slots[i] ? c.slots[i]->text() : nullptr;
  if (!s) failed("an argument of a method of str that is a " + kind_of(c.value(i)));
  return *s;
}

Value strip(Call& c, int sides) {
  const std::string* chars = c.has(0) ? &needed_text(c, 0) : nullptr;
  return same_kind(c, stripped(own(c), sides, chars));
}

Value split(Call& c, bool from_right) {
  const std::string* between = c.has(0) ? &needed_text(c, 0) : nullptr;
  std::int64_t most = c.integer(1, -1);
  if (between && between->empty()) failed("a split by an empty text");
  std::string_view rest = own(c);
  List parts;
  charge(rest.size());
  const auto add = [&](std::string_view part) { parts.push_back(same_kind(c, part)); };
  if (between) {
    for (; most != 0; --most) {
      const std::size_t at = from_right ? rest.rfind(*between) : rest.find(*between);
      if (at == std::string_view::npos) break;
      add(from_right ? rest.substr(at + between->size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + between->size());
    }
    add(rest);
  } else {
    const int near = from_right ? kRight : kLeft;
    for (rest = stripped(rest, near); !rest.empty(); rest = stripped(rest, near), --most) {
      if (most == 0) {
        add(stripped(rest, kBoth - near));
        break;
      }
      const auto all = characters(rest);
      std::size_t size = 0, at = 0;
      while (at < all.size() && !is_space(all[from_right ? all.size() - 1 - at : at])) {
        size += all[from_right ? all.size() - 1 - at++ : at++].size();
      }
      add(from_right ? rest.substr(rest.size() - size) : rest.substr(0, size));
      rest = from_right ? rest.substr(0, rest.size() - size) : rest.substr(size);
    }
  }
  if (from_right) std::ranges::reverse(parts);
  return list(std::move(parts));
}

// The characters between the bounds that a method is given after its first argument.
std::string_view bounded(const Call& c, std::size_t& skipped) {
  skipped = 0;
  if (!c.has(1) && !c.has(2)) return own(c);
  const auto all = characters(own(c));
  const auto size = static_cast<std::int64_t>(all.size());
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = c.integer(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t begin = bound(1, 0), end = std::max(begin, bound(2, size));
  if (c.integer(1, 0) > size) return std::string_view(nullptr, 0);
  const auto bytes = [&](std::int64_t n) {
    std::size_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += all[static_cast<std::size_t>(i)].size();
    return sum;
  };
  skipped = static_cast<std::size_t>(begin);
  return std::string_view(own(c)).substr(bytes(begin), bytes(end) - bytes(begin));
}

Value find(Call& c, bool last, bool must) {
  std::size_t skipped = 0;
  const std::string_view in = bounded(c, skipped);
  charge(in.size());
  const std::size_t at = last ? in.rfind(needed_text(c, 0)) : in.find(needed_text(c, 0));
  if (at != std::string_view::npos && in.data()) return integer(skipped + length(in.substr(0, at)));
  if (must) failed("an index() of a text that is not there");
  return {std::int64_t{-1}};
}

Value has_side(Call& c, bool end) {
  std::size_t skipped = 0;
  const std::string_view in = bounded(c, skipped);
  const List* several = c.slots[0]->list(Sequence::Kind::tuple);
  const List all = several ? *several : List{*c.slots[0]};
  return boolean(std::ranges::any_of(all, [&](const Value& one) {
    if (!one.text()) failed("a side of a text that is a " + kind_of(one));
    return in.data() && (end ? in.ends_with(*one.text()) : in.starts_with(*one.text()));
  }));
}

Value count(Call& c) {
  std::size_t skipped = 0, n = 0;
  const std::string_view in = bounded(c, skipped);
  const std::string& what = needed_text(c, 0);
  charge(in.size());
  if (what.empty()) return integer(in.data() ? length(in) + 1 : 0);
  for (std::size_t at = in.find(what); at != in.npos; at = in.find(what, at + what.size())) ++n;
  return integer(n);
}

Value join(Call& c) {
  std::string all;
  bool first = true;
  const auto part = [&](const Value& v) { return c.self.safe() && !v.safe() ? escaped_html(*v.text()) : *v.text(); };
  for (const Value& one : items_of(*c.slots[0])) {
    if (!one.text()) failed("a join of a " + kind_of(one));
    charge(own(c).size());
    if (!std::exchange(first, false)) all += own(c);
    all += part(one);
  }
  return same_kind(c, all);
}

// With `fill` at its sides, as many as make `width` characters.
Value filled(Call& c, char side) {
  const std::int64_t width = c.integer(0, 0), missing = width - static_cast<std::int64_t>(length(own(c)));
  const std::string fill = c.slots.size() > 1 && c.has(1) ? needed_text(c, 1) : side == '0' ? "0" : " ";
  if (length(fill) != 1) failed("a fill of other than one character");
  if (missing <= 0) return same_kind(c, own(c));
  charge(static_cast<std::size_t>(missing) * fill.size());
  const std::int64_t left = side == '<' ? 0 : side == '^' ? missing / 2 + (missing & width & 1) : missing;
  std::string begin, end;
  for (std::int64_t i = 0; i < missing; ++i) (i < left ? begin : end) += fill;
  const bool sign = side == '0' && (own(c).starts_with('-') || own(c).starts_with('+'));
  return same_kind(c, sign ? own(c).substr(0, 1) + begin + own(c).substr(1) : begin + own(c) + end);
}

Value part(Call& c, bool last) {
  const std::string& by = needed_text(c, 0);
  if (by.empty()) failed("a partition by an empty text");
  const std::string_view all = own(c);
  const std::size_t at = last ? all.rfind(by) : all.find(by);
  const bool none_there = at == all.npos;
  const std::string_view before = none_there ? (last ? "" : all) : all.substr(0, at);
  const std::string_view after = none_there ? (last ? all : "") : all.substr(at + by.size());
  return list({same_kind(c, before), same_kind(c, none_there ? "" : by), same_kind(c, after)}, Sequence::Kind::tuple);
}

Value title(Call& c) {
  std::string out;
  bool begins = true;
  for (const std::string_view one : characters(own(c))) {
    const bool cased = lower(one) != one || upper(one) != one;
    if (!cased && static_cast<unsigned char>(one[0]) >= 0x80) unsupported("str.title() of " + std::string(one));
    out += !cased ? std::string(one) : begins ? capitalized(one) : lower(one);
    begins = !cased;
  }
  return same_kind(c, out);
}

// Whether all characters are of a kind, which is known for ASCII.
template <class Test>
Value all_are(Call& c, const Test& test) {
  for (const char one : own(c)) {
    if (static_cast<unsigned char>(one) >= 0x80) unsupported("a test of the kind of characters beyond ASCII");
    if (!test(one)) return boolean(false);
  }
  return boolean(!own(c).empty());
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

Value case_of(Call& c, bool upper_case) {
  const std::string high = upper(own(c)), low = lower(own(c));
  return boolean(high != low && own(c) == (upper_case ? high : low));
}

Value swapped(Call& c) {
  std::string out;
  for (const std::string_view one : characters(own(c))) out += lower(one) != one ? lower(one) : upper(one);
  return same_kind(c, out);
}

Value lines(Call& c) {
  List all;
  for (const std::string_view line : lines_of(own(c), c.flag(0))) all.push_back(same_kind(c, line));
  return list(std::move(all));
}

Value without_side(Call& c, bool end) {
  const std::string& what = needed_text(c, 0);
  std::string_view all = own(c);
  if (!end && all.starts_with(what)) all.remove_prefix(what.size());
  if (end && all.ends_with(what)) all.remove_suffix(what.size());
  return same_kind(c, all);
}

Value replace(Call& c) {
  const std::string& by = needed_text(c, 1);
  const bool escapes = c.self.safe() && !c.slots[1]->safe();
  return same_kind(c, replaced(own(c), needed_text(c, 0), escapes ? escaped_html(by) : by, c.integer(2, -1)));
}

Value formatted(Call& c) {
  if (c.self.safe()) unsupported("format() of a safe text");
  return text(format(own(c), c.rest));
}

constexpr Builtin kText[] = {
    {"capitalize", "/", [](Call& c) { return same_kind(c, capitalized(own(c))); }},
    {"casefold", "/", nullptr},
    {"center", "/ width fill?", [](Call& c) { return filled(c, '^'); }},
    {"count", "/ sub start? end?", count},
    {"encode", "*", nullptr},
    {"endswith", "/ suffix start? end?", [](Call& c) { return has_side(c, true); }},
    {"expandtabs", "*", nullptr},
    {"find", "/ sub start? end?", [](Call& c) { return find(c, false, false); }},
    {"format", "*", formatted},
    {"format_map", "*", nullptr},
    {"index", "/ sub start? end?", [](Call& c) { return find(c, false, true); }},
    {"isalnum", "/", [](Call& c) { return all_are(c, [](char x) { return is_digit(x) || is_letter(x); }); }},
    {"isalpha", "/", [](Call& c) { return all_are(c, is_letter); }},
    {"isascii", "/", nullptr},
    {"isdecimal", "/", [](Call& c) { return all_are(c, is_digit); }},
    {"isdigit", "/", [](Call& c) { return all_are(c, is_digit); }},
    {"isidentifier", "/", nullptr},
    {"islower", "/", [](Call& c) { return case_of(c, false); }},
    {"isnumeric", "/", [](Call& c) { return all_are(c, is_digit); }},
    {"isprintable", "/", nullptr},
    {"isspace", "/", [](Call& c) { return boolean(!own(c).empty() && stripped(own(c), kLeft).empty()); }},
    {"istitle", "/", nullptr},
    {"isupper", "/", [](Call& c) { return case_of(c, true); }},
    {"join", "/ iterable", join},
    {"ljust", "/ width fill?", [](Call& c) { return filled(c, '<'); }},
    {"lower", "/", [](Call& c) { return same_kind(c, lower(own(c))); }},
    {"lstrip", "/ chars?", [](Call& c) { return strip(c, kLeft); }},
    {"maketrans", "*", nullptr},
    {"partition", "/ sep", [](Call& c) { return part(c, false); }},
    {"removeprefix", "/ prefix", [](Call& c) { return without_side(c, false); }},
    {"removesuffix", "/ suffix", [](Call& c) { return without_side(c, true); }},
    {"replace", "/ old new count?", replace},
    {"rfind", "/ sub start? end?", [](Call& c) { return find(c, true, false); }},
    {"rindex", "/ sub start? end?", [](Call& c) { return find(c, true, true); }},
    {"rjust", "/ width fill?", [](Call& c) { return filled(c, '>'); }},
    {"rpartition", "/ sep", [](Call& c) { return part(c, true); }},
    {"rsplit", "sep? maxsplit?", [](Call& c) { return split(c, true); }},
    {"rstrip", "/ chars?", [](Call& c) { return strip(c, kRight); }},
    {"split", "sep? maxsplit?", [](Call& c) { return split(c, false); }},
    {"splitlines", "keepends?", lines},
    {"startswith", "/ prefix start? end?", [](Call& c) { return has_side(c, false); }},
    {"strip", "/ chars?", [](Call& c) { return strip(c, kBoth); }},
    {"swapcase", "/", swapped},
    {"title", "/", title},
    {"translate", "*", nullptr},
    {"upper", "/", [](Call& c) { return same_kind(c, upper(own(c))); }},
    {"zfill", "/ width", [](Call& c) { return filled(c, '0'); }},
};

// The sandbox lets nobody change a list or a dict.
Value changed(Call& c) { failed("a change of a " + kind_of(c.self) + ", which the sandbox forbids"); }

template <int Part>  // 0 keys, 1 values, 2 both
Value view(Call& c) {
  List all;
  for (const auto& [key, value] : c.self.dict()->entries()) {
    all.push_back(Part == 0 ? key : Part == 1 ? value : list({key, value}, Sequence::Kind::tuple));
  }
  constexpr Sequence::Kind kinds[] = {Sequence::Kind::keys, Sequence::Kind::values, Sequence::Kind::items};
  return list(std::move(all), kinds[Part]);
}

Value get(Call& c) {
  key_of(*c.slots[0]);
  const Value* found = c.self.dict()->find(*c.slots[0]);
  return found ? *found : c.value(1);
}

constexpr Builtin kDict[] = {
    {"clear", "*", changed},      {"copy", "/", [](Call& c) { return c.self; }},
    {"fromkeys", "*", nullptr},   {"get", "/ key default?", get},
    {"items", "/", view<2>},      {"keys", "/", view<0>},
    {"pop", "*", changed},        {"popitem", "*", changed},
    {"setdefault", "*", changed}, {"update", "*", changed},
    {"values", "/", view<1>},
};

Value index(Call& c) {
  const List& all = c.self.sequence()->items;
  const auto at = std::ranges::find_if(all, [&](const Value& v) { return equal(v, *c.slots[0]); });
  if (at == all.end()) failed("an index() of what is not in the list");
  return integer(static_cast<std::size_t>(at - all.begin()));
}

Value counted(Call& c) {
  const auto n = std::ranges::count_if(c.self.sequence()->items, [&](const Value& v) { return equal(v, *c.slots[0]); });
  return integer(static_cast<std::size_t>(n));
}

constexpr Builtin kList[] = {
    {"count", "/ value", counted},
    {"index", "/ value", index},
    {"append", "*", changed},
    {"clear", "*", changed},
    {"copy", "/", [](Call& c) { return c.self; }},
    {"extend", "*", changed},
    {"insert", "*", changed},
    {"pop", "*", changed},
    {"remove", "*", changed},
    {"reverse", "*", changed},
    {"sort", "*", changed},
};

constexpr std::string_view kNumberAttributes[] = {
    "real",     "imag",       "numerator",        "denominator", "conjugate", "bit_length", "bit_count",
    "to_bytes", "from_bytes", "as_integer_ratio", "is_integer",  "hex",       "fromhex"};

std::span<const Builtin> methods_of(const Value& value) {
  if (value.text()) return kText;
  if (value.dict()) return kDict;
  const Sequence* s = value.sequence();
  if (s && s->kind == Sequence::Kind::list) return kList;
  return std::span(kList).first(s && s->kind <= Sequence::Kind::range ? 2 : 0);
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
  if (name == "depth") return integer(loop->depth + 1);
  if (name == "depth0") return integer(loop->depth);
  if (name == "previtem") return at > 0 ? loop->items[at - 1] : undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < size ? loop->items[at + 1] : undefined("there is no next item");
  if (name == "cycle") {
    return function(name, [loop](Arguments& given) {
      if (given.values.empty()) failed("loop.cycle() of nothing");
      return given.values[loop->at % given.values.size()];
    });
  }
  if (name == "changed") unsupported("loop.changed()");
  return {};
}

}  // namespace

std::optional<Value> method(const Value& value, const std::string& name) {
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return of_loop(*loop, name);
  if (is_number(value) && std::ranges::count(kNumberAttributes, name) > 0)
    unsupported("the attribute " + name + " of a number");
  const std::span<const Builtin> all = methods_of(value);
  const auto at = std::ranges::find(all, name, &Builtin::name);
  if (at == all.end()) return {};
  return function(name, [value, &own = *at](Arguments& given) {
    if (!own.call) unsupported("the method " + std::string(own.name) + " of a " + kind_of(value));
    return call(own, value, given);
  });
}

}  // namespace attn::jinja
