// Jinja's filters, and transformers' tojson.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

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

Value at_path(Value value, const List& path, const Value& otherwise = none()) {
  for (const Value& key : path) {
    value = item(value, key);
    if (!otherwise.is<None>() && value.is<Undefined>()) value = otherwise;
  }
  return value;
}

Value without_case(Value value, bool sensitive) {
  return value.text() && !sensitive ? text(lower(*value.text())) : value;
}

Value sort_key(const Value& item, const Value& attribute, bool sensitive) {
  return without_case(at_path(item, path_of(attribute)), sensitive);
}

// What sort() compares by: a list of the attributes between commas, or of the one.
Value sort_keys(const Value& item, const Value& attribute, bool sensitive) {
  if (!attribute.text()) return list({sort_key(item, attribute, sensitive)});
  List keys;
  std::string_view rest = *attribute.text();
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    keys.push_back(sort_key(item, text(std::string(part)), sensitive));
    if (part.size() == rest.size()) return list(std::move(keys));
    rest.remove_prefix(part.size() + 1);
  }
}

using Key = Value (*)(const Value&, const Value&, bool);

List sorted(const List& items, Key key, const Value& attribute, bool sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> pairs;
  for (const Value& one : items) pairs.emplace_back(key(one, attribute, sensitive), one);
  std::ranges::stable_sort(
      pairs, [&](const auto& a, const auto& b) { return reverse ? less(b.first, a.first) : less(a.first, b.first); });
  List all;
  for (auto& pair : pairs) all.push_back(std::move(pair.second));
  return all;
}

Value extreme(Call& c, bool largest) {
  const List items = items_of(c.self);
  if (items.empty()) return undefined("no item");
  std::size_t best = 0;
  Value best_key = sort_key(items[0], c.value(1), c.flag(0));
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(items[i], c.value(1), c.flag(0));
    if (largest ? less(best_key, key) : less(key, best_key)) best = i, best_key = std::move(key);
  }
  return items[best];
}

// map, select, reject and their kin: the rest's first value names a filter or a test.
std::string taken_name(Arguments& given) {
  if (given.values.empty() || !given.values[0].text()) failed("a filter without the name of another");
  std::string name = *given.values[0].text();
  given.values.erase(given.values.begin());
  return name;
}

Value mapped(Call& c) {
  List all;
  if (!truth(c.self)) return stream({});
  Arguments given = c.rest;
  const auto find = [&](std::string_view name) {
    return std::ranges::find(given.named, name, [](const auto& pair) { return std::string_view(pair.first); });
  };
  if (given.values.empty() && find("attribute") != given.named.end()) {
    const Value path = find("attribute")->second;
    const Value otherwise = find("default") != given.named.end() ? find("default")->second : none();
    if (given.named.size() > (find("default") != given.named.end() ? 2u : 1u)) failed("the arguments of map");
    for (const Value& one : items_of(c.self)) all.push_back(at_path(one, path_of(path), otherwise));
    return stream(std::move(all));
  }
  const std::string name = taken_name(given);
  for (const Value& one : items_of(c.self)) all.push_back(filtered(name, one, given));
  return stream(std::move(all));
}

Value chosen(Call& c, bool by_attribute, bool wanted) {
  List all;
  if (!truth(c.self)) return stream({});
  Arguments given = c.rest;
  List path;
  if (by_attribute) {
    if (given.values.empty()) failed("a filter without the name of an attribute");
    path = path_of(given.values[0]);
    given.values.erase(given.values.begin());
  }
  const std::string test = given.values.empty() ? "" : taken_name(given);
  for (const Value& one : items_of(c.self)) {
    const Value value = at_path(one, path);
    if ((test.empty() ? truth(value) : passes(test, value, given)) == wanted) all.push_back(one);
  }
  return stream(std::move(all));
}

Value indented(Call& c) {
  if (!c.self.text()) failed("an indent of a " + kind_of(c.self));
  const bool is_text = c.slots[0] && c.slots[0]->text(), first = c.flag(1), blank = c.flag(2);
  const std::int64_t width = is_text ? 0 : c.integer(0, 4);
  charge(static_cast<std::size_t>(std::clamp<std::int64_t>(width, 0, std::int64_t{1} << 40)));
  const std::string space =
      is_text ? *c.slots[0]->text() : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const std::string whole = *c.self.text() + "\n";
  std::string out = first ? space : "";
  bool begun = false;
  for (const std::string_view line : lines_of(whole)) {
    const bool indents = begun && (blank || !line.empty());
    charge(space.size());
    out.append(std::exchange(begun, true) ? "\n" : "").append(indents ? space : "").append(line);
  }
  return text(out, c.self.safe());
}

Value json(Call& c) {
  JsonStyle style{.ascii = c.flag(0), .sorted = c.flag(3)};
  if (c.has(1)) {
    style.lines = true, style.between = ",";
    const bool is_text = c.slots[1]->text() != nullptr;
    const std::int64_t width = is_text ? 0 : std::max<std::int64_t>(c.integer(1, 0), 0);
    if (width > 1000) unsupported("an indent of more than 1000");
    style.indent = is_text ? *c.slots[1]->text() : std::string(static_cast<std::size_t>(width), ' ');
  }
  if (c.has(2)) {
    const List two = items_of(*c.slots[2]);
    if (two.size() != 2 || !two[0].text() || !two[1].text()) failed("separators of JSON that are not two texts");
    style.between = *two[0].text(), style.after_key = *two[1].text();
  }
  return text(json_text(c.self, style));
}

// int(text) and float(text): none where that is no number.
template <class Number>
std::optional<Number> parsed(const std::string& given, int base = 10) {
  std::string digits(stripped(given, kBoth));
  for (std::size_t at = 1; at + 1 < digits.size(); ++at) {
    if (digits[at] == '_' && std::isalnum(static_cast<unsigned char>(digits[at - 1])) != 0) digits.erase(at, 1);
  }
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
  for (const char c : digits) {
    if (static_cast<unsigned char>(c) >= 0x80) unsupported("a number with other digits than 0 to 9");
  }
  Number number{};
  std::from_chars_result result{};
  const char* end = digits.data() + digits.size();
  if constexpr (std::is_integral_v<Number>) {
    result = std::from_chars(digits.data(), end, number, base);
  } else {
    result = std::from_chars(digits.data(), end, number);
  }
  if (result.ec == std::errc::result_out_of_range) unsupported("the number " + digits);
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
  if (const auto i = parsed<std::int64_t>(*c.self.text(), static_cast<int>(c.integer(1, 10)))) return {*i};
  const auto x = parsed<double>(*c.self.text());
  return x ? truncated(*x).value_or(c.value(0, integer(0))) : c.value(0, integer(0));
}

Value to_float(Call& c) {
  if (const Undefined* u = c.self.get<Undefined>()) failed(*u->why);
  if (is_number(c.self)) return {real(c.self)};
  const auto x = c.self.text() ? parsed<double>(*c.self.text()) : std::nullopt;
  return x ? Value{*x} : c.value(0, {0.0});
}

Value rounded(Call& c) {
  if (!is_number(c.self)) failed("a " + kind_of(c.self) + " that is rounded");
  const std::int64_t digits = c.integer(0, 0);
  const std::string method = c.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") failed("the way " + method + " to round");
  if (digits < 0 || digits > 300) unsupported("rounding to this many digits");
  std::int64_t number = 0;
  const double x = real(c.self), scale = std::pow(10.0, static_cast<double>(digits));
  if (method != "common") return {(method == "ceil" ? std::ceil(x * scale) : std::floor(x * scale)) / scale};
  if (whole(c.self, number)) return {number};
  std::array<char, 700> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), x);
  return {std::strtod(buffer.data(), nullptr)};
}

Value batched(Call& c) {
  List all, row;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(c.integer(0, 1), 0));
  for (Value& one : items_of(c.self)) {
    if (row.size() == size) all.push_back(list(std::exchange(row, {})));
    row.push_back(std::move(one));
  }
  if (!row.empty()) {
    charge(c.has(1) && size > row.size() ? (size - row.size()) * sizeof(Value) : 0);
    while (c.has(1) && row.size() < size) row.push_back(*c.slots[1]);
    all.push_back(list(std::move(row)));
  }
  return stream(std::move(all));
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
  List pairs;
  for (const auto& [key, value] : c.self.dict()->entries()) pairs.push_back(list({key, value}, Sequence::Kind::tuple));
  return list(sorted(pairs, sort_key, integer(by == "value"), c.flag(0), c.flag(2)));
}

Value join(Call& c) {
  List all = items_of(c.self);
  for (Value& one : all) one = c.slots[1] ? at_path(one, path_of(c.value(1))) : one;
  return text(joined(all, c.text(0)));
}

Value summed(Call& c) {
  Value sum = c.value(1, integer(0));
  for (const Value& one : items_of(c.self)) sum = computed('+', sum, at_path(one, path_of(c.value(0))));
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

Value pairs_of(Call& c) {
  if (!c.self.dict() && !c.self.is<Undefined>()) unsupported("the items of a " + kind_of(c.self));
  List pairs;
  if (!c.self.dict()) return stream({});
  for (const auto& [key, value] : c.self.dict()->entries()) pairs.push_back(list({key, value}, Sequence::Kind::tuple));
  return stream(std::move(pairs));
}

Value safe_text(Call& c, bool escapes) {
  const std::string all = shown(c.self);
  return text(escapes && !c.self.safe() ? escaped_html(all) : all, true);
}

Value format_filter(Call& c) {
  if (!c.rest.named.empty()) unsupported("the filter format with names");
  return text(percent(shown(c.self), list(c.rest.values, Sequence::Kind::tuple)), c.self.safe());
}

Value absolute(Call& c) {
  if (!is_number(c.self)) failed("the absolute value of a " + kind_of(c.self));
  return real(c.self) < 0 ? negative(c.self) : c.self.is<bool>() ? integer(truth(c.self)) : c.self;
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
    {"abs", "", absolute},
    {"attr", "name",
     [](Call& c) {
       return c.self.dict() ? method(c.self, c.text(0)).value_or(undefined("no attribute"))
                            : attribute(c.self, c.text(0));
     }},
    {"batch", "linecount fill_with?", batched},
    {"capitalize", "", [](Call& c) { return text(capitalized(shown(c.self)), c.self.safe()); }},
    {"count", "", [](Call& c) { return integer(length_of(c.self)); }},
    {"d", "default_value? boolean?", default_of},
    {"default", "default_value? boolean?", default_of},
    {"dictsort", "case_sensitive? by? reverse?", dictsorted},
    {"e", "", [](Call& c) { return safe_text(c, true); }},
    {"escape", "", [](Call& c) { return safe_text(c, true); }},
    {"first", "", first_of},
    {"float", "default?", to_float},
    {"format", "*", format_filter},
    {"indent", "width? first? blank?", indented},
    {"int", "default? base?", to_int},
    {"items", "", pairs_of},
    {"join", "d? attribute?", join},
    {"last", "", last_of},
    {"length", "", [](Call& c) { return integer(length_of(c.self)); }},
    {"list", "", [](Call& c) { return list(items_of(c.self)); }},
    {"lower", "", [](Call& c) { return text(lower(shown(c.self)), c.self.safe()); }},
    {"map", "*", mapped},
    {"max", "case_sensitive? attribute?", [](Call& c) { return extreme(c, true); }},
    {"min", "case_sensitive? attribute?", [](Call& c) { return extreme(c, false); }},
    {"reject", "*", [](Call& c) { return chosen(c, false, false); }},
    {"rejectattr", "*", [](Call& c) { return chosen(c, true, false); }},
    {"replace", "old new count?", replace_filter},
    {"reverse", "", reversed},
    {"round", "precision? method?", rounded},
    {"safe", "", [](Call& c) { return safe_text(c, false); }},
    {"select", "*", [](Call& c) { return chosen(c, false, true); }},
    {"selectattr", "*", [](Call& c) { return chosen(c, true, true); }},
    {"sort", "reverse? case_sensitive? attribute?",
     [](Call& c) { return list(sorted(items_of(c.self), sort_keys, c.value(2), c.flag(1), c.flag(0))); }},
    {"string", "", [](Call& c) { return text(shown(c.self), c.self.safe()); }},
    {"sum", "attribute? start?", summed},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", json},
    {"trim", "chars?", trimmed},
    {"unique", "case_sensitive? attribute?", unique},
    {"upper", "", [](Call& c) { return text(upper(shown(c.self)), c.self.safe()); }},
};

const Builtin& found(const std::string& name) {
  const auto* at = std::ranges::find(kFilters, name, &Builtin::name);
  if (at != std::end(kFilters)) return *at;
  unsupported("the filter " + name);
}

}  // namespace

void require_filter(const std::string& name) { found(name); }

Value filtered(const std::string& name, const Value& value, Arguments given) {
  return call(found(name), value, std::move(given));
}

}  // namespace attn::jinja
