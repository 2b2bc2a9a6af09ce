#include "jinja/value.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attn/error.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

using Kind = Sequence::Kind;

constexpr std::size_t kMostWork = std::size_t{1} << 28;
constexpr int kDeepest = 100;
thread_local Budget* current = nullptr;

int deeper(int depth, const Value& value) {
  const int inner = value.sequence() ? value.sequence()->depth : value.dict() ? value.dict()->depth() : 0;
  if (inner >= kDeepest) failed("lists in one another, more than 100 deep");
  return std::max(depth, inner + 1);
}

// The address of what Python tells from another by its identity, or null.
const void* identity(const Value& value) {
  const Sequence* s = value.sequence();
  if (s) return s->kind == Kind::values || s->kind == Kind::generator ? s : nullptr;
  return value.space() ? static_cast<const void*>(value.space()) : value.shared<Loop>();
}

}  // namespace

Budget::Budget() : left(kMostWork), before_(std::exchange(current, this)) {}
Budget::~Budget() { current = before_; }

void charge(std::size_t work) {
  if (!current) return;
  if (work > current->left) failed("more work than attn does for a conversation");
  current->left -= work;
}

void failed(const std::string& why) {
  throw Error(Error::Kind::data, "ChatTemplate", "a template that can be rendered", why);
}

void unsupported(const std::string& what) {
  throw Error(Error::Kind::data, "ChatTemplate", "a template of what attn has of Jinja", what,
              "write the conversation's text yourself");
}

const Value* Dict::find(const Value& key) const {
  if (key.dict() || key.list(Kind::list)) return nullptr;
  const auto at = places_.find(key_of(key));
  return at == places_.end() ? nullptr : &entries_[at->second].second;
}

void Dict::set(Value key, Value value) {
  depth_ = deeper(deeper(depth_, key), value);
  const auto [at, is_new] = places_.emplace(key_of(key), entries_.size());
  if (!is_new) {
    entries_[at->second].second = std::move(value);
    return;
  }
  charge(128);
  entries_.emplace_back(std::move(key), std::move(value));
}

Value text(std::string_view bytes, bool safe) {
  charge(bytes.size());
  return {Text{std::make_shared<const std::string>(bytes), safe}};
}

Value list(List items, Kind kind) {
  charge(items.size() * sizeof(Value));
  int depth = 1;
  for (const Value& item : items) depth = deeper(depth, item);
  return {std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth})};
}

Value dict(Dict entries) { return {std::make_shared<const Dict>(std::move(entries))}; }

Value function(std::string name, std::function<Value(Arguments&)> call) {
  return {std::make_shared<const Function>(Function{std::move(name), std::move(call)})};
}

Value undefined(std::string why) { return {Undefined{std::make_shared<const std::string>(std::move(why))}}; }

bool truth(const Value& value) {
  if (const auto number = real(value)) return *number != 0;
  if (const std::string* s = value.text()) return !s->empty();
  if (const Sequence* s = value.sequence()) return s->kind == Kind::generator || !s->items.empty();
  if (const Dict* d = value.dict()) return !d->entries().empty();
  return !value.is<Undefined>() && !value.is<None>();
}

std::optional<std::int64_t> whole(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b;
  const std::int64_t* i = value.get<std::int64_t>();
  return i ? std::optional(*i) : std::nullopt;
}

std::optional<double> real(const Value& value) {
  if (const double* x = value.get<double>()) return *x;
  const auto number = whole(value);
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

bool equal(const Value& a, const Value& b) {
  charge(16);
  if (real(a) && real(b)) {
    const auto wide = [](const Value& v) {
      const auto number = whole(v);
      return number ? static_cast<long double>(*number) : static_cast<long double>(*real(v));
    };
    return wide(a) == wide(b);
  }
  if (a.held.index() != b.held.index()) return false;
  if (a.text()) {
    charge(std::min(a.text()->size(), b.text()->size()));
    return *a.text() == *b.text();
  }
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s) {
    if (s->kind == Kind::values || s->kind == Kind::generator) return s == t;
    return s->kind == t->kind && std::ranges::equal(s->items, t->items, equal);
  }
  if (const Dict* d = a.dict(), *e = b.dict(); d) {
    return d->entries().size() == e->entries().size() && std::ranges::all_of(d->entries(), [&](const auto& entry) {
             const Value* other = e->find(entry.first);
             return other && equal(entry.second, *other);
           });
  }
  if (a.is<Undefined>() || a.is<None>()) return true;
  unsupported("the comparison of a " + kind_of(a));
}

bool less(const Value& a, const Value& b) {
  charge(16);
  if (whole(a) && whole(b)) return *whole(a) < *whole(b);
  if (real(a) && real(b)) return *real(a) < *real(b);
  if (a.text() && b.text()) {
    charge(std::min(a.text()->size(), b.text()->size()));
    return *a.text() < *b.text();
  }
  const Sequence *s = a.row(), *t = b.row();
  if (!s || !t || s->kind != t->kind || s->kind == Kind::range) {
    failed("an order of " + kind_of(a) + " and " + kind_of(b));
  }
  const auto [i, j] = std::ranges::mismatch(s->items, t->items, equal);
  if (i == s->items.end() || j == t->items.end()) return s->items.size() < t->items.size();
  return less(*i, *j);
}

std::string key_of(const Value& value) {
  charge(16);
  if (const std::string* s = value.text()) return charge(s->size()), std::string("s").append(*s);
  if (const auto number = real(value)) {
    const bool fits = whole(value) || (std::floor(*number) == *number && std::abs(*number) < 9e18);
    const std::int64_t i = whole(value).value_or(fits ? static_cast<std::int64_t>(*number) : 0);
    return std::string("n").append(fits ? std::to_string(i) : shown(value));
  }
  if (value.is<None>()) return "none";
  if (value.is<Undefined>()) return "undefined";
  if (const void* address = identity(value)) return "i" + std::to_string(reinterpret_cast<std::uintptr_t>(address));
  if (value.shared<const Function>()) unsupported("a function as a key");
  const Sequence* s = value.row();
  if (!s || s->kind == Kind::list) failed("a key that is a " + kind_of(value));
  std::string key = s->kind == Kind::range ? "r" : "t";
  for (const Value& item : s->items) {
    const std::string part = key_of(item);
    charge(part.size());  // a tuple may hold another many times
    key += std::to_string(part.size()) + ":" + part;
  }
  return key;
}

List items_of(const Value& value) {
  List items;
  if (const std::string* s = value.text()) {
    for (const std::string_view c : characters(*s)) items.push_back(text(c));
  } else if (const Sequence* held = value.sequence()) {
    items.assign(held->items.begin() + static_cast<std::ptrdiff_t>(held->taken), held->items.end());
    if (held->kind == Kind::generator) held->taken = held->items.size();
  } else if (const Dict* d = value.dict()) {
    for (const auto& [key, ignored] : d->entries()) items.push_back(key);
  } else if (!value.is<Undefined>()) {
    failed("a loop over a " + kind_of(value));
  }
  charge(items.size() * sizeof(Value));
  return items;
}

List pairs_of(const Dict& all) {
  List pairs;
  for (const auto& [key, value] : all.entries()) pairs.push_back(list({key, value}, Kind::tuple));
  return pairs;
}

std::string kind_of(const Value& value) {
  constexpr std::string_view names[] = {"undefined value", "None",     "bool", "int", "float", "str", "", "dict",
                                        "namespace",       "function", "loop"};
  constexpr std::string_view sequences[] = {"list",        "tuple",      "range",    "dict_keys",
                                            "dict_values", "dict_items", "generator"};
  const Sequence* s = value.sequence();
  return std::string(s ? sequences[static_cast<std::size_t>(s->kind)] : names[value.held.index()]);
}

}  // namespace attn::jinja
