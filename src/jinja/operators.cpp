// Python's operators, and how Jinja's sandbox reads attributes and items.
#include <algorithm>
#include <cmath>

#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

using Kind = Sequence::Kind;

Value of_integers(char sign, std::int64_t a, std::int64_t b) {
  std::int64_t c = 0;
  bool beyond = false;
  if (sign == '+') beyond = __builtin_add_overflow(a, b, &c);
  if (sign == '-') beyond = __builtin_sub_overflow(a, b, &c);
  if (sign == '*') beyond = __builtin_mul_overflow(a, b, &c);
  if (sign == '|' && b == -1) beyond = __builtin_sub_overflow(0, a, &c);
  if (beyond) unsupported("an integer beyond 64 bits");
  if (b != -1 && (sign == '|' || sign == '%')) {
    const bool down = a % b != 0 && (a < 0) != (b < 0);
    c = sign == '|' ? a / b - down : a % b + (down ? b : 0);
  }
  return {c};
}

Value of_floats(char sign, double a, double b) {
  if (sign == '+' || sign == '-') return {sign == '+' ? a + b : a - b};
  if (sign == '*' || sign == '/') return {sign == '*' ? a * b : a / b};
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (rest == 0) rest = std::copysign(0.0, b);
  return {sign == '%' ? rest : std::round((a - rest) / b)};
}

std::optional<Value> repeated(const Value& a, const Value& times) {
  if (!whole(times) || (!a.text() && !a.sequence())) return {};
  if (!a.text()) unsupported("the operator * of a " + kind_of(a));
  const std::size_t size = a.text()->size();
  const std::int64_t n = size == 0 ? 0 : std::max<std::int64_t>(*whole(times), 0);
  charge(static_cast<std::size_t>(std::min<double>(static_cast<double>(size) * static_cast<double>(n), 1e15)));
  std::string all;
  for (std::int64_t i = 0; i < n; ++i) all.append(*a.text());
  return text(all, a.safe());
}

std::optional<Value> added(const Value& a, const Value& b) {
  if (a.text() && b.text()) {
    const bool safe = a.safe() || b.safe();
    const auto part = [&](const Value& v) { return safe && !v.safe() ? escaped_html(*v.text()) : *v.text(); };
    return text(part(a) + part(b), safe);
  }
  const Sequence *s = a.row(), *t = b.row();
  if (!s || !t || s->kind != t->kind || s->kind == Kind::range) return {};
  List items = s->items;
  items.insert(items.end(), t->items.begin(), t->items.end());
  return list(std::move(items), s->kind);
}

// The items or characters from `begin` in steps.
std::vector<std::size_t> places(std::size_t size, const Value& begin, const Value& end, const Value& step) {
  const auto n = static_cast<std::int64_t>(size);
  std::int64_t by = whole(step).value_or(1);
  if (by == 0) failed("a slice with a step of 0");
  const auto bound = [&](const Value& given, std::int64_t otherwise) {
    if (!whole(given)) return otherwise;
    std::int64_t at = *whole(given);
    if (at < 0) at = at < -n ? -1 : at + n;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, n) : std::clamp<std::int64_t>(at, -1, n - 1);
  };
  const std::int64_t from = bound(begin, by > 0 ? 0 : n - 1), to = bound(end, by > 0 ? n : -1);
  by = std::clamp<std::int64_t>(by, -n - 1, n + 1);
  std::vector<std::size_t> all;
  for (std::int64_t at = from; by > 0 ? at < to : at > to; at += by) all.push_back(static_cast<std::size_t>(at));
  return all;
}

}  // namespace

void require_defined(const Value& value) {
  if (const Undefined* u = value.get<Undefined>()) failed(*u->why);
}

Value computed(char sign, const Value& a, const Value& b) {
  charge(16);
  if (sign == '%' && a.safe()) unsupported("the operator % of a safe text");
  if (sign == '%' && a.text()) return text(percent(*a.text(), b));
  require_defined(a), require_defined(b);
  if (real(a) && real(b)) {
    if (*real(b) == 0 && (sign == '/' || sign == '|' || sign == '%')) failed("a division by zero");
    const bool floats = sign == '/' || !whole(a) || !whole(b);
    return floats ? of_floats(sign, *real(a), *real(b)) : of_integers(sign, *whole(a), *whole(b));
  }
  std::optional<Value> result;
  if (sign == '+') result = added(a, b);
  if (sign == '*') result = repeated(a, b);
  if (sign == '*' && !result) result = repeated(b, a);
  if (!result) failed(std::string("no operator ") + sign + " of " + kind_of(a) + " and " + kind_of(b));
  return *result;
}

bool contains(const Value& all, const Value& one) {
  if (const std::string* s = all.text()) {
    if (!one.text()) failed("a " + kind_of(one) + " looked for in a str");
    charge_search(*s, *one.text());
    return s->find(*one.text()) != std::string::npos;
  }
  if (const Dict* d = all.dict()) {
    key_of(one);
    return d->find(one) != nullptr;
  }
  const Sequence* s = all.sequence();
  if (!s || s->kind != Kind::generator) {
    return std::ranges::any_of(items_of(all), [&](const Value& v) { return equal(v, one); });
  }
  while (s->taken < s->items.size()) {
    if (equal(s->items[s->taken++], one)) return true;
  }
  return false;
}

Value attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (const Value* found = value.space() ? value.space()->values.find(text(name)) : nullptr) return *found;
  if (const auto found = method(value, name)) return *found;
  if (const Value* found = value.dict() ? value.dict()->find(text(name)) : nullptr) return *found;
  if (name.starts_with("__") && name.ends_with("__")) unsupported("the attribute " + name);
  return undefined(kind_of(value).append(" without the attribute ").append(name));
}

Value item(const Value& value, const Value& key) {
  require_defined(value);
  if (const Value* found = value.dict() ? value.dict()->find(key) : nullptr) return *found;
  if ((value.text() || value.row()) && whole(key)) {
    const auto all = value.text() ? characters(*value.text()) : std::vector<std::string_view>{};
    const auto size = static_cast<std::int64_t>(value.text() ? all.size() : value.row()->items.size());
    const std::int64_t at = *whole(key) < 0 ? *whole(key) + size : *whole(key);
    if (at < 0 || at >= size) return undefined("an index that is out of range");
    const auto place = static_cast<std::size_t>(at);
    return value.text() ? text(all[place], value.safe()) : value.row()->items[place];
  }
  if (key.text()) {
    if (const auto found = method(value, *key.text())) return *found;
    if (const Value* found = value.space() ? value.space()->values.find(key) : nullptr) return *found;
  }
  return undefined(kind_of(value).append(" without the item ").append(key.text() ? *key.text() : "of this index"));
}

Value sliced(const Value& value, const Value& begin, const Value& end, const Value& step) {
  require_defined(value);
  const auto fits = [](const Value& v) { return v.is<None>() || whole(v); };
  const Sequence* s = value.row();
  if (!fits(begin) || !fits(end) || !fits(step) || !(value.text() || (s && s->kind != Kind::range))) {
    unsupported(std::string("a slice of a ").append(kind_of(value)).append(" by these indices"));
  }
  if (s) {
    List items;
    for (const std::size_t at : places(s->items.size(), begin, end, step)) items.push_back(s->items[at]);
    return list(std::move(items), s->kind);
  }
  const auto all = characters(*value.text());
  std::string joined;
  for (const std::size_t at : places(all.size(), begin, end, step)) joined.append(all[at]);
  return text(joined, value.safe());
}

}  // namespace attn::jinja
