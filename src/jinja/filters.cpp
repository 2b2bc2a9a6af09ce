// Jinja's filters, and transformers' tojson.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

// "a.0.b" as the keys that lead to a value; a value that is no text is one key.
List path_of(const Value& attribute) {
  if (!attribute.text()) return attribute.is<None>() ? List{} : List{attribute};
  List path;
  std::string_view rest = *attribute.text();
  while (true) {
    const std::string part(rest.substr(0, rest.find('.')));
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos && part.size() < 10;
    path.push_back(digits ? Value{std::int64_t{std::stoi(part)}} : text(part));
    if (part.size() == rest.size()) return path;
    rest.remove_prefix(part.size() + 1);
  }
}

Value at_path(Value value, const Value& attribute) {
  for (const Value& key : path_of(attribute)) value = item(value, key);
  return value;
}

Value sort_key(const Value& item, const Value& attribute, bool sensitive) {
  Value key = at_path(item, attribute);
  return key.text() && !sensitive ? text(lower(*key.text())) : key;
}

// `in_lists`: compares lists of a key, in which what is equal needs no order, as Jinja's sort does.
List sorted(const List& items, const Value& attribute, bool sensitive, bool reverse, bool in_lists) {
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
  return all;
}

Value extreme(Call& c, bool largest) {
  const List items = items_of(c.self);
  if (items.empty()) return undefined("no item");
  const auto key = [&](const Value& one) { return sort_key(one, c.value(1), c.flag(0)); };
  if (items.size() == 1) key(items[0]);  // which may fail
  return largest ? *std::ranges::max_element(items, less, key) : *std::ranges::min_element(items, less, key);
}

// map, select, reject and their kin: the rest's first value names a filter or a test.
std::string taken_name(Arguments& given) {
  if (given.values.empty() || !given.values[0].text()) failed("a filter without the name of another");
  std::string name = *given.values[0].text();
  given.values.erase(given.values.begin());
  return name;
}

Value mapped(Call& c) {
  if (!truth(c.self)) return stream({});
  Arguments given = c.rest;
  const bool by_attribute = given.values.empty() && !given.named.empty() && given.named[0].first == "attribute";
  if (by_attribute && given.named.size() > 1)
    unsupported("the argument " + given.named[1].first + " of the filter map");
  if (given.values.empty() && !by_attribute) unsupported("these arguments of the filter map");
  const std::string name = by_attribute ? "" : taken_name(given);
  List all;
  for (const Value& one : items_of(c.self)) {
    all.push_back(by_attribute ? at_path(one, given.named[0].second) : filtered(name, one, given));
  }
  return stream(std::move(all));
}

Value chosen(Call& c, bool by_attribute, bool wanted) {
  List all;
  if (!truth(c.self)) return stream({});
  Arguments given = c.rest;
  Value path = none();
  if (by_attribute) {
    if (given.values.empty()) failed("a filter without the name of an attribute");
    path = given.values[0];
    given.values.erase(given.values.begin());
  }
  const std::string test = given.values.empty() ? "" : taken_name(given);
  for (const Value& one : items_of(c.self)) {
    const Value value = at_path(one, path);
    if ((test.empty() ? truth(value) : passes(test, value, given)) == wanted) all.push_back(one);
  }
  return stream(std::move(all));
}

// The blanks of a filter's argument `indent` or `width`, which Python also takes as a text.
std::string blanks(const Call& c, std::size_t i, std::int64_t otherwise) {
  if (c.has(i) && c.slots[i]->text()) unsupported("an indent that is a text");
  const std::int64_t width = std::max<std::int64_t>(c.integer(i, otherwise), 0);
  if (width > 1000) unsupported("an indent of more than 1000");
  return std::string(static_cast<std::size_t>(width), ' ');
}

Value indented(Call& c) {
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
    const List two = items_of(*c.slots[2]);
    if (two.size() != 2 || !two[0].text() || !two[1].text()) failed("separators of JSON that are not two texts");
    style.between = *two[0].text(), style.after_key = *two[1].text();
  }
  return text(json_text(c.self, style));
}

// int(text) and float(text): none where that is no number.
template <class Number>
std::optional<Number> parsed(const std::string& given) {
  const std::string_view digits = stripped(given, kBoth);
  const bool rare =
      std::ranges::any_of(digits, [](char c) { return c == '_' || static_cast<unsigned char>(c) >= 0x80; });
  if (rare || digits.starts_with('+')) unsupported("a text such as " + given + " as a number");
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, number);
  if (result.ec == std::errc::result_out_of_range) unsupported("the number " + given);
  if (result.ec != std::errc{} || result.ptr != end) return {};
  return number;
}

std::optional<Value> truncated(double x) {
  if (!std::isfinite(x)) return {};
  if (std::abs(x) >= 9.2e18) unsupported("an integer beyond 64 bits");
  return Value{static_cast<std::int64_t>(x)};
}

Value to_int(Call& c) {
  std::int64_t number = 0;
  if (const Undefined* u = c.self.get<Undefined>()) failed(*u->why);
  if (whole(c.self, number)) return {number};
  if (c.self.is<double>()) return truncated(real(c.self)).value_or(c.value(0, integer(0)));
  if (!c.self.text()) return c.value(0, integer(0));
  if (const auto i = parsed<std::int64_t>(*c.self.text())) return {*i};
  const auto x = parsed<double>(*c.self.text());
  return x ? truncated(*x).value_or(c.value(0, integer(0))) : c.value(0, integer(0));
}

Value to_float(Call& c) {
  if (const Undefined* u = c.self.get<Undefined>()) failed(*u->why);
  if (is_number(c.self)) return {real(c.self)};
  const auto x = c.self.text() ? parsed<double>(*c.self.text()) : std::nullopt;
  return x ? Value{*x} : c.value(0, {0.0});
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
  return stream(std::move(all));
}

Value dictsorted(Call& c) {
  if (!c.self.dict()) failed("a dictsort of a " + kind_of(c.self));
  const std::string by = c.text(1, "key");
  if (by != "key" && by != "value") failed("a dictsort by other than key and value");
  return list(sorted(pairs_of(*c.self.dict()), integer(by == "value"), c.flag(0), c.flag(2), false));
}

Value join(Call& c) {
  List all = items_of(c.self);
  for (Value& one : all) one = at_path(one, c.value(1));
  return text(joined(all, c.text(0)));
}

Value summed(Call& c) {
  Value sum = c.value(1, integer(0));
  for (const Value& one : items_of(c.self)) sum = computed('+', sum, at_path(one, c.value(0)));
  return sum;
}

Value reversed(Call& c) {
  List items = items_of(c.self);
  std::ranges::reverse(items);
  if (!c.self.text()) return stream(std::move(items));
  std::string all;
  for (const Value& one : items) all += *one.text();
  return text(all);
}

Value first_of(Call& c) {
  if (const auto* held = c.self.get<std::shared_ptr<Stream>>()) {
    Stream& s = **held;
    return s.next < s.items.size() ? s.items[s.next++] : undefined("no first item");
  }
  const List items = items_of(c.self);
  return items.empty() ? undefined("no first item") : items.front();
}

Value last_of(Call& c) {
  if (c.self.is<std::shared_ptr<Stream>>()) failed("the last item of a generator");
  const List items = items_of(c.self);
  return items.empty() ? undefined("no last item") : items.back();
}

Value items(Call& c) {
  if (!c.self.dict() && !c.self.is<Undefined>()) unsupported("the items of a " + kind_of(c.self));
  return stream(c.self.dict() ? pairs_of(*c.self.dict()) : List{});
}

Value safe_text(Call& c, bool escapes) {
  const std::string all = shown(c.self);
  return text(escapes && !c.self.safe() ? escaped_html(all) : all, true);
}

Value default_of(Call& c) {
  const bool missing = c.self.is<Undefined>() || (c.flag(1) && !truth(c.self));
  return missing ? c.value(0, text("")) : c.self;
}

Value replace_filter(Call& c) { return text(replaced(shown(c.self), c.text(0), c.text(1), c.integer(2, -1))); }

Value trimmed(Call& c) {
  const std::string chars = c.text(0);
  return text(std::string(stripped(shown(c.self), kBoth, c.has(0) ? &chars : nullptr)), c.self.safe());
}

constexpr Builtin kFilters[] = {
    {"capitalize", "", [](Call& c) { return text(capitalized(shown(c.self)), c.self.safe()); }},
    {"d default", "default_value? boolean?", default_of},
    {"dictsort", "case_sensitive? by? reverse?", dictsorted},
    {"e escape", "", [](Call& c) { return safe_text(c, true); }},
    {"first", "", first_of},
    {"float", "default?", to_float},
    {"indent", "width? first? blank?", indented},
    {"int", "default? base!", to_int},
    {"items", "", items},
    {"join", "d? attribute?", join},
    {"last", "", last_of},
    {"length count", "", [](Call& c) { return integer(length_of(c.self)); }},
    {"list", "", [](Call& c) { return list(items_of(c.self)); }},
    {"lower", "", [](Call& c) { return text(lower(shown(c.self)), c.self.safe()); }},
    {"map", "*", mapped},
    {"max", "case_sensitive? attribute?", [](Call& c) { return extreme(c, true); }},
    {"min", "case_sensitive? attribute?", [](Call& c) { return extreme(c, false); }},
    {"reject", "*", [](Call& c) { return chosen(c, false, false); }},
    {"rejectattr", "*", [](Call& c) { return chosen(c, true, false); }},
    {"replace", "old new count?", replace_filter},
    {"reverse", "", reversed},
    {"safe", "", [](Call& c) { return safe_text(c, false); }},
    {"select", "*", [](Call& c) { return chosen(c, false, true); }},
    {"selectattr", "*", [](Call& c) { return chosen(c, true, true); }},
    {"sort", "reverse? case_sensitive? attribute?",
     [](Call& c) { return list(sorted(items_of(c.self), c.value(2), c.flag(1), c.flag(0), true)); }},
    {"string", "", [](Call& c) { return text(shown(c.self), c.self.safe()); }},
    {"sum", "attribute? start?", summed},
    {"title", "", [](Call& c) { return text(titled(shown(c.self), false), c.self.safe()); }},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", json},
    {"trim", "chars?", trimmed},
    {"unique", "case_sensitive? attribute?", unique},
    {"upper", "", [](Call& c) { return text(upper(shown(c.self)), c.self.safe()); }},
};

const Builtin& known(const std::string& name) {
  if (const Builtin* filter = found(kFilters, name)) return *filter;
  unsupported("the filter " + name);
}

}  // namespace

void require_filter(const std::string& name) { known(name); }

Value filtered(const std::string& name, const Value& value, Arguments given) {
  return call(known(name), value, std::move(given));
}

}  // namespace attn::jinja
