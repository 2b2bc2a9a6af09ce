#include "jinja/value.hpp"

#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

constexpr std::size_t kMostWork = std::size_t{1} << 28;
constexpr int kDeepest = 100;
thread_local Budget* current = nullptr;

int depth_of(const Value& value) {
  if (const Sequence* s = value.sequence()) return s->depth;
  const Dict* d = value.dict();
  return d ? d->depth() : 0;
}

int deeper(int depth, const Value& value) {
  depth = std::max(depth, depth_of(value) + 1);
  if (depth > kDeepest) failed("lists in one another, more than 100 deep");
  return depth;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::ranges::all_of(a.entries(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other && equal(entry.second, *other);
  });
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

const Dict* Value::dict() const noexcept {
  const auto* held_dict = get<std::shared_ptr<const Dict>>();
  return held_dict ? held_dict->get() : nullptr;
}

const Sequence* Value::sequence() const noexcept {
  const auto* held_sequence = get<std::shared_ptr<const Sequence>>();
  return held_sequence ? held_sequence->get() : nullptr;
}

const List* Value::list(Sequence::Kind kind) const noexcept {
  const Sequence* s = sequence();
  return s && s->kind == kind ? &s->items : nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.dict() || key.list(Sequence::Kind::list)) return nullptr;
  const auto at = places_.find(key_of(key));
  return at == places_.end() ? nullptr : &entries_[at->second].second;
}

void Dict::set(Value key, Value value) {
  depth_ = deeper(deeper(depth_, key), value);
  const auto [at, is_new] = places_.emplace(key_of(key), entries_.size());
  charge(is_new ? 128 : 0);
  if (!is_new) {
    entries_[at->second].second = std::move(value);
  } else {
    entries_.emplace_back(std::move(key), std::move(value));
  }
}

Value text(std::string bytes, bool safe) {
  charge(bytes.size());
  return {Text{std::make_shared<const std::string>(std::move(bytes)), safe}};
}

Value list(List items, Sequence::Kind kind) {
  charge(items.size() * sizeof(Value));
  int depth = 1;
  for (const Value& item : items) depth = deeper(depth, item);
  return {std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth})};
}

Value dict(Dict entries) { return {std::make_shared<const Dict>(std::move(entries))}; }

Value stream(List items) {
  for (const Value& item : items) {
    if (item.is<std::shared_ptr<Stream>>()) unsupported("a generator in a generator");
  }
  charge(items.size() * sizeof(Value));
  return {std::make_shared<Stream>(Stream{std::move(items), 0})};
}

Value function(std::string name, std::function<Value(Arguments&)> call) {
  return {std::make_shared<const Function>(Function{std::move(name), std::move(call)})};
}

Value undefined(std::string why) { return {Undefined{std::make_shared<const std::string>(std::move(why))}}; }

Value integer(std::size_t value) { return {static_cast<std::int64_t>(value)}; }

bool truth(const Value& value) {
  std::int64_t number = 0;
  if (whole(value, number)) return number != 0;
  if (const double* x = value.get<double>()) return *x != 0;
  if (const std::string* s = value.text()) return !s->empty();
  if (const Sequence* s = value.sequence()) return !s->items.empty();
  if (const Dict* d = value.dict()) return !d->entries().empty();
  return !value.is<Undefined>() && !value.is<None>();
}

bool whole(const Value& value, std::int64_t& number) {
  if (const bool* b = value.get<bool>()) number = *b;
  if (const std::int64_t* i = value.get<std::int64_t>()) number = *i;
  return value.is<bool>() || value.is<std::int64_t>();
}

bool is_number(const Value& value) { return value.is<bool>() || value.is<std::int64_t>() || value.is<double>(); }

double real(const Value& value) {
  std::int64_t number = 0;
  return whole(value, number) ? static_cast<double>(number) : *value.get<double>();
}

bool equal(const Value& a, const Value& b) {
  std::int64_t x = 0, y = 0;
  charge(16);
  if (whole(a, x) && whole(b, y)) return x == y;
  if (is_number(a) && is_number(b)) {
    const auto wide = [](const Value& v) {
      std::int64_t i = 0;
      return whole(v, i) ? static_cast<long double>(i) : static_cast<long double>(*v.get<double>());
    };
    return wide(a) == wide(b);
  }
  if (a.held.index() != b.held.index()) return false;
  if (a.text()) {
    charge(std::min(a.text()->size(), b.text()->size()));
    return *a.text() == *b.text();
  }
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s) {
    if (s->kind == Sequence::Kind::values) return s == t;
    return s->kind == t->kind && std::ranges::equal(s->items, t->items, equal);
  }
  if (a.dict()) return equal_dicts(*a.dict(), *b.dict());
  if (a.is<Undefined>() || a.is<None>()) return true;
  unsupported("the comparison of a " + kind_of(a));
}

bool less(const Value& a, const Value& b) {
  std::int64_t x = 0, y = 0;
  charge(16);
  if (whole(a, x) && whole(b, y)) return x < y;
  if (is_number(a) && is_number(b)) return real(a) < real(b);
  if (a.text() && b.text()) {
    charge(std::min(a.text()->size(), b.text()->size()));
    return *a.text() < *b.text();
  }
  const Sequence *s = a.sequence(), *t = b.sequence();
  if (!s || !t || s->kind != t->kind || s->kind > Sequence::Kind::tuple) {
    failed("an order of " + kind_of(a) + " and " + kind_of(b));
  }
  const auto [i, j] = std::ranges::mismatch(s->items, t->items, equal);
  if (i == s->items.end() || j == t->items.end()) return s->items.size() < t->items.size();
  return less(*i, *j);
}

std::string key_of(const Value& value) {
  if (const std::string* s = value.text()) return charge(s->size()), std::string("s").append(*s);
  std::int64_t number = 0;
  if (whole(value, number)) return std::string("n").append(std::to_string(number));
  if (const double* x = value.get<double>()) {
    const bool fits = std::floor(*x) == *x && std::abs(*x) < 9e18;
    return std::string("n").append(fits ? std::to_string(static_cast<std::int64_t>(*x)) : shown(value));
  }
  if (value.is<None>()) return "none";
  if (value.is<Undefined>()) return "undefined";
  const List* items = value.list(Sequence::Kind::tuple);
  if (!items) failed("a key that is a " + kind_of(value));
  std::string key = "t";
  for (const Value& item : *items) {
    const std::string part = key_of(item);
    key += std::to_string(part.size()) + ":" + part;
  }
  return key;
}

List items_of(const Value& value) {
  List items;
  if (const std::string* s = value.text()) {
    for (const std::string_view c : characters(*s)) items.push_back(text(std::string(c)));
  } else if (const Sequence* held = value.sequence()) {
    items = held->items;
  } else if (const Dict* d = value.dict()) {
    for (const auto& [key, ignored] : d->entries()) items.push_back(key);
  } else if (const auto* taken = value.get<std::shared_ptr<Stream>>()) {
    items.assign((*taken)->items.begin() + static_cast<std::ptrdiff_t>((*taken)->next), (*taken)->items.end());
    (*taken)->next = (*taken)->items.size();
  } else if (!value.is<Undefined>()) {
    failed("a loop over a " + kind_of(value));
  }
  charge(items.size() * sizeof(Value));
  return items;
}

List pairs_of(const Dict& all) {
  List pairs;
  for (const auto& [key, value] : all.entries()) pairs.push_back(list({key, value}, Sequence::Kind::tuple));
  return pairs;
}

std::size_t length_of(const Value& value) {
  if (const std::string* s = value.text()) return length(*s);
  if (const Sequence* s = value.sequence()) return s->items.size();
  if (const Dict* d = value.dict()) return d->entries().size();
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return (*loop)->items.size();
  if (!value.is<Undefined>()) failed("the length of a " + kind_of(value));
  return 0;
}

std::string kind_of(const Value& value) {
  constexpr std::string_view names[] = {"undefined value", "None",      "bool",     "int", "float", "str", "", "dict",
                                        "generator",       "namespace", "function", "loop"};
  constexpr std::string_view sequences[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  if (const Sequence* s = value.sequence()) return std::string(sequences[static_cast<std::size_t>(s->kind)]);
  return std::string(names[value.held.index()]);
}

}  // namespace attn::jinja
