// Jinja's filters, transformers' tojson, and the methods of texts.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/utf8.hpp"
#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

using Kind = Sequence::Kind;

// ---- items of lists

// The value that "a.0.b" leads to; a key that is no text is one step, and None is none.
Value at_path(Value value, const Value& attribute) {
  if (!attribute.text()) return attribute.is<None>() ? value : item(value, attribute);
  std::string_view rest = *attribute.text();
  while (true) {
    const std::string part(rest.substr(0, rest.find('.')));
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos && part.size() < 10;
    value = item(value, digits ? Value{std::int64_t{std::stoi(part)}} : text(part));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

Value sort_key(const Value& item, const Value& attribute, bool sensitive) {
  Value key = at_path(item, attribute);
  return key.text() && !sensitive ? text(lower(*key.text())) : key;
}

// `in_lists`: compares lists of a key, in which what is equal needs no order, as Jinja's sort does.
Value sorted(const List& items, const Value& attribute, bool sensitive, bool reverse, bool in_lists) {
  if (attribute.text() && attribute.text()->find(',') != std::string::npos) unsupported("a sort by several attributes");
  std::vector<std::pair<Value, Value>> pairs;
  for (const Value& one : items) {
    Value key = sort_key(one, attribute, sensitive);
    pairs.emplace_back(in_lists ? list({key}) : key, one);
  }
  std::ranges::stable_sort(
      pairs, [&](const auto& a, const auto& b) { return reverse ? less(b.first, a.first) : less(a.first, b.first); });
  List all;
  for (auto& pair : pairs) all.push_back(std::move(pair.second));
  return list(std::move(all));
}

Value sort(Call& c) { return sorted(items_of(c.self), c.value(2), c.flag(1), c.flag(0), true); }

Value dictsort(Call& c) {
  if (!c.self.dict()) failed("a dictsort of a " + kind_of(c.self));
  const std::string by = c.text(1, "key");
  if (by != "key" && by != "value") failed("a dictsort by other than key and value");
  return sorted(pairs_of(*c.self.dict()), integer(by == "value"), c.flag(0), c.flag(2), false);
}

Value extreme(Call& c, bool largest) {
  const List items = items_of(c.self);
  if (items.empty()) return undefined("no item");
  const auto key = [&](const Value& one) { return sort_key(one, c.value(1), c.flag(0)); };
  if (items.size() == 1) key(items[0]);  // which may fail
  return largest ? *std::ranges::max_element(items, less, key) : *std::ranges::min_element(items, less, key);
}

Value unique(Call& c) {
  Dict seen;
  List all;
  for (Value& one : items_of(c.self)) {
    const Value key = sort_key(one, c.value(1), c.flag(0));
    if (seen.find(key)) continue;
    seen.set(key, none());
    all.push_back(std::move(one));
  }
  return list(std::move(all), Kind::generator);
}

Value taken(List& given, const char* what) {
  if (given.empty()) failed(std::string("a filter without the name of ") + what);
  Value first = given.front();
  given.erase(given.begin());
  return first;
}

std::string taken_name(List& given) {
  const Value name = taken(given, "another");
  if (!name.text()) failed("a filter without the name of another");
  return *name.text();
}

Value map(Call& c) {
  List all;
  if (!truth(c.self)) return list({}, Kind::generator);
  Arguments given = c.rest;
  const bool by_attribute = given.values.empty() && !given.named.empty() && given.named[0].first == "attribute";
  if (by_attribute && given.named.size() > 1) {
    unsupported("the argument " + given.named[1].first + " of the filter map");
  }
  if (given.values.empty() && !by_attribute) unsupported("these arguments of the filter map");
  const std::string name = by_attribute ? "" : taken_name(given.values);
  for (const Value& one : items_of(c.self)) {
    all.push_back(by_attribute ? at_path(one, given.named[0].second) : filtered(name, one, given));
  }
  return list(std::move(all), Kind::generator);
}

// select, reject, selectattr and rejectattr.
Value chosen(Call& c, bool by_attribute, bool wanted) {
  List all;
  if (!truth(c.self)) return list({}, Kind::generator);
  Arguments given = c.rest;
  const Value path = by_attribute ? taken(given.values, "an attribute") : none();
  const std::string test = given.values.empty() ? "" : taken_name(given.values);
  for (const Value& one : items_of(c.self)) {
    const Value value = at_path(one, path);
    if ((test.empty() ? truth(value) : passes(test, value, given)) == wanted) all.push_back(one);
  }
  return list(std::move(all), Kind::generator);
}

Value sum(Call& c) {
  Value sum = c.value(1, integer(0));
  if (sum.text()) failed("a sum of texts, which Python refuses");
  for (const Value& one : items_of(c.self)) sum = computed('+', sum, at_path(one, c.value(0)));
  return sum;
}

Value reverse(Call& c) {
  List items = items_of(c.self);
  std::ranges::reverse(items);
  if (!c.self.text()) return list(std::move(items), Kind::generator);
  std::string all;
  for (const Value& one : items) all += *one.text();
  return text(all);
}

Value first(Call& c) {
  if (const Sequence* s = c.self.sequence(); s && s->kind == Kind::generator) {
    return s->taken < s->items.size() ? s->items[s->taken++] : undefined("no first item");
  }
  const List items = items_of(c.self);
  return items.empty() ? undefined("no first item") : items.front();
}

Value last(Call& c) {
  if (c.self.list(Kind::generator)) failed("the last item of a generator");
  const List items = items_of(c.self);
  return items.empty() ? undefined("no last item") : items.back();
}

Value items(Call& c) {
  if (!c.self.dict() && !c.self.is<Undefined>()) unsupported("the items of a " + kind_of(c.self));
  return list(c.self.dict() ? pairs_of(*c.self.dict()) : List{}, Kind::generator);
}

Value size(Call& c) {
  if (const std::string* s = c.self.text()) return integer(length(*s));
  if (const Loop* loop = c.self.shared<Loop>()) return integer(loop->items.size());
  if (const Dict* d = c.self.dict()) return integer(d->entries().size());
  const Sequence* s = c.self.sequence();
  if (s && s->kind != Kind::generator) return integer(s->items.size());
  if (!c.self.is<Undefined>()) failed("the length of a " + kind_of(c.self));
  return integer(0);
}

// ---- texts and numbers

Value joined(const List& all, const std::string& between, const Value& attribute) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    charge(between.size());
    out.append(i > 0 ? between : "").append(shown(at_path(all[i], attribute)));
  }
  return text(out);
}

Value join_texts(Call& c) {
  const List all = items_of(c[0]);
  for (const Value& one : all) {
    if (!one.text()) failed("a join of a " + kind_of(one));
    if (one.safe()) unsupported("the method join of a safe text");
  }
  return joined(all, *c.self.text(), none());
}

// The blanks of a filter's argument `indent` or `width`, which Python also takes as a text.
std::string blanks(const Call& c, std::size_t i, std::int64_t otherwise) {
  if (c.has(i) && c[i].text()) unsupported("an indent that is a text");
  const std::int64_t width = std::max<std::int64_t>(c.integer(i, otherwise), 0);
  if (width > 1000) unsupported("an indent of more than 1000");
  return std::string(static_cast<std::size_t>(width), ' ');
}

Value indent(Call& c) {
  if (!c.self.text()) failed("an indent of a " + kind_of(c.self));
  const std::string space = blanks(c, 0, 4), whole = *c.self.text() + "\n";
  std::string out = c.flag(1) ? space : "";
  bool begun = false;
  for (const std::string_view line : lines_of(whole)) {
    const bool indents = begun && (c.flag(2) || !line.empty());
    charge(space.size());
    out.append(std::exchange(begun, true) ? "\n" : "").append(indents ? space : "").append(line);
  }
  return text(out, c.self.safe());
}

Value json(Call& c) {
  JsonStyle style{.ascii = c.flag(0), .sorted = c.flag(3)};
  if (c.has(1)) style.lines = true, style.between = ",", style.indent = blanks(c, 1, 0);
  if (c.has(2)) {
    const List two = items_of(c[2]);
    if (two.size() != 2 || !two[0].text() || !two[1].text()) failed("separators of JSON that are not two texts");
    style.between = *two[0].text(), style.after_key = *two[1].text();
  }
  return text(json_text(c.self, style));
}

Value absolute(Call& c) {
  if (const double* x = c.self.get<double>()) return {std::abs(*x)};
  if (!whole(c.self)) failed("the size of a " + kind_of(c.self));
  return computed('*', c.self, {std::int64_t{*whole(c.self) < 0 ? -1 : 1}});
}

// int(text) and float(text): none where that is no number.
template <class Number>
std::optional<Number> parsed(const std::string& given) {
  const std::string_view digits = stripped(given, kBoth);
  const bool rare = std::ranges::any_of(digits, [](char c) { return c == '_' || (c & 0x80) != 0; });
  if (rare || digits.starts_with('+')) unsupported("a text such as " + given + " as a number");
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, number);
  if (result.ec == std::errc::result_out_of_range) unsupported("the number " + given);
  return result.ec == std::errc{} && result.ptr == end ? std::optional(number) : std::nullopt;
}

Value to_float(Call& c) {
  require_defined(c.self);
  const auto x = c.self.text() ? parsed<double>(*c.self.text()) : real(c.self);
  return x ? Value{*x} : c.value(0, {0.0});
}

Value to_int(Call& c) {
  require_defined(c.self);
  if (const auto i = c.self.text() ? parsed<std::int64_t>(*c.self.text()) : whole(c.self)) return {*i};
  const auto x = c.self.text() ? parsed<double>(*c.self.text()) : real(c.self);
  if (!x || !std::isfinite(*x)) return c.value(0, integer(0));
  if (std::abs(*x) >= 9.2e18) unsupported("an integer beyond 64 bits");
  return {static_cast<std::int64_t>(*x)};
}

Value safe(Call& c, bool escapes) {
  const std::string all = shown(c.self);
  return text(escapes && !c.self.safe() ? escaped_html(all) : all, true);
}

Value otherwise(Call& c) {
  const bool missing = c.self.is<Undefined>() || (c.flag(1) && !truth(c.self));
  return missing ? c.value(0, text("")) : c.self;
}

Value strip(Call& c, int sides) {
  const std::string all = shown(c.self), chars = c.text(0);
  return text(stripped(all, sides, c.has(0) ? &chars : nullptr), c.self.safe());
}

Value replace(Call& c) { return text(replaced(shown(c.self), c.text(0), c.text(1), c.integer(2, -1))); }

template <std::string (*kChanged)(std::string_view)>
Value changed(Call& c) {
  return text(kChanged(shown(c.self)), c.self.safe());
}
std::string titled_filter(std::string_view all) { return titled(all, false); }
std::string titled_method(std::string_view all) { return titled(all, true); }
std::string same(std::string_view all) { return std::string(all); }

Value split(Call& c, bool from_right) {
  std::int64_t most = c.integer(1, -1);
  std::string_view rest = *c.self.text();
  List parts;
  if (!c.has(0)) {
    if (most >= 0 && from_right) unsupported("a split at white space from the right that ends after some parts");
    for (rest = stripped(rest, kLeft); !rest.empty(); rest = stripped(rest, kLeft), --most) {
      std::size_t size = most == 0 ? rest.size() : 0;
      while (size < rest.size() && !is_space(rest.substr(size))) size += first_character(rest.substr(size)).length;
      parts.push_back(text(rest.substr(0, size)));
      rest.remove_prefix(size);
    }
    return list(std::move(parts));
  }
  const std::string& between = *c[0].text();
  if (between.empty()) failed("a split by an empty text");
  charge_search(rest, between);
  for (; most != 0; --most) {
    const std::size_t at = from_right ? rest.rfind(between) : rest.find(between);
    if (at == std::string_view::npos) break;
    const std::string_view before = rest.substr(0, at), after = rest.substr(at + between.size());
    parts.push_back(text(from_right ? after : before));
    rest = from_right ? before : after;
  }
  parts.push_back(text(rest));
  if (from_right) std::ranges::reverse(parts);
  return list(std::move(parts));
}

Value lines(Call& c) {
  List all;
  for (const std::string_view line : lines_of(*c.self.text())) all.push_back(text(line));
  return list(std::move(all));
}

Value find(Call& c, bool last) {
  const std::string &all = *c.self.text(), &what = *c[0].text();
  charge_search(all, what);
  const std::size_t at = last ? all.rfind(what) : all.find(what);
  return at == std::string::npos ? Value{std::int64_t{-1}} : integer(length(all.substr(0, at)));
}

Value count(Call& c) {
  const std::string &all = *c.self.text(), &what = *c[0].text();
  if (what.empty()) return integer(length(all) + 1);
  charge_search(all, what);
  std::size_t n = 0;
  for (std::size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + what.size())) ++n;
  return integer(n);
}

Value has_side(Call& c, bool end) {
  const std::string& all = *c.self.text();
  const List sides = c[0].list(Kind::tuple) ? items_of(c[0]) : List{c[0]};
  return boolean(std::ranges::any_of(sides, [&](const Value& one) {
    if (!one.text()) failed("a side of a text that is a " + kind_of(one));
    return end ? all.ends_with(*one.text()) : all.starts_with(*one.text());
  }));
}

Value without_side(Call& c, bool end) {
  std::string_view all = *c.self.text();
  const std::string& side = *c[0].text();
  if (!end && all.starts_with(side)) all.remove_prefix(side.size());
  if (end && all.ends_with(side)) all.remove_suffix(side.size());
  return text(all);
}

// '%s and %s' | format(a, b)
Value percent_of(Call& c) {
  if (!c.rest.named.empty()) unsupported("the filter format of values by name");
  return text(percent(shown(c.self), list(c.rest.values, Kind::tuple)));
}

constexpr Builtin kAllFilters[] = {
    {"abs", "", absolute},
    {"capitalize", "", changed<capitalized>},
    {"d default", "default_value? boolean?", otherwise},
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"e escape", "", [](Call& c) { return safe(c, true); }},
    {"first", "", first},
    {"float", "default?", to_float},
    {"format", "*", percent_of},
    {"indent", "width? first? blank?", indent},
    {"int", "default? base!", to_int},
    {"items", "", items},
    {"join", "d? attribute?", [](Call& c) { return joined(items_of(c.self), c.text(0), c.value(1)); }},
    {"last", "", last},
    {"length count", "", size},
    {"list", "", [](Call& c) { return list(items_of(c.self)); }},
    {"lower", "", changed<lower>},
    {"map", "*", map},
    {"max", "case_sensitive? attribute?", [](Call& c) { return extreme(c, true); }},
    {"min", "case_sensitive? attribute?", [](Call& c) { return extreme(c, false); }},
    {"reject", "*", [](Call& c) { return chosen(c, false, false); }},
    {"rejectattr", "*", [](Call& c) { return chosen(c, true, false); }},
    {"replace", "old new count?", replace},
    {"reverse", "", reverse},
    {"safe", "", [](Call& c) { return safe(c, false); }},
    {"select", "*", [](Call& c) { return chosen(c, false, true); }},
    {"selectattr", "*", [](Call& c) { return chosen(c, true, true); }},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"string", "", changed<same>},
    {"sum", "attribute? start?", sum},
    {"title", "", changed<titled_filter>},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", json},
    {"trim", "chars?$", [](Call& c) { return strip(c, kBoth); }},
    {"unique", "case_sensitive? attribute?", unique},
    {"upper", "", changed<upper>},
};

constexpr Builtin kAllTexts[] = {
    {"capitalize", "/", changed<capitalized>},
    {"count", "/ sub$ start! end!", count},
    {"endswith", "/ suffix start! end!", [](Call& c) { return has_side(c, true); }},
    {"find", "/ sub$ start! end!", [](Call& c) { return find(c, false); }},
    {"format", "*", [](Call& c) { return text(format(*c.self.text(), c.rest)); }},
    {"join", "/ iterable", join_texts},
    {"lower", "/", changed<lower>},
    {"lstrip", "/ chars?$", [](Call& c) { return strip(c, kLeft); }},
    {"removeprefix", "/ prefix$", [](Call& c) { return without_side(c, false); }},
    {"removesuffix", "/ suffix$", [](Call& c) { return without_side(c, true); }},
    {"replace", "/ old$ new$ count?", replace},
    {"rfind", "/ sub$ start! end!", [](Call& c) { return find(c, true); }},
    {"rsplit", "sep?$ maxsplit?", [](Call& c) { return split(c, true); }},
    {"rstrip", "/ chars?$", [](Call& c) { return strip(c, kRight); }},
    {"split", "sep?$ maxsplit?", [](Call& c) { return split(c, false); }},
    {"splitlines", "keepends!", lines},
    {"startswith", "/ prefix start! end!", [](Call& c) { return has_side(c, false); }},
    {"strip", "/ chars?$", [](Call& c) { return strip(c, kBoth); }},
    {"title", "/", changed<titled_method>},
    {"upper", "/", changed<upper>},
};

}  // namespace

const Table kFilters{"filter", kAllFilters}, kTexts{"method", kAllTexts};

}  // namespace attn::jinja
