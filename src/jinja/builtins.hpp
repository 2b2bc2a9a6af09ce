// What templates find without defining it: filters, tests, functions, and methods of Python's values.
#pragma once

#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "jinja/value.hpp"

namespace attn::jinja {

// What a builtin is handed. Arguments lie in the order of its parameters; those not given are empty.
struct Call {
  const Value& self;
  std::vector<std::optional<Value>> slots;
  Arguments rest;  // of one that takes any

  bool has(std::size_t i) const { return slots[i].has_value() && !slots[i]->is<None>(); }
  Value value(std::size_t i, const Value& otherwise = none()) const { return slots[i] ? *slots[i] : otherwise; }
  std::string text(std::size_t i, std::string otherwise = {}) const;  // as str() gives it
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;  // None counts as not given
  bool flag(std::size_t i) const { return slots[i] && truth(*slots[i]); }
};

struct Builtin {
  std::string_view names;  // one, or several with blanks between them
  // "old new count?": the first are needed, and one with "!" is lacking here. "/" before them takes no names, and "*"
  // after them takes any further ones.
  std::string_view parameters;
  Value (*call)(Call&);
};

bool listed(std::string_view names, std::string_view name);  // with blanks between them
const Builtin* found(std::span<const Builtin> all, std::string_view name);
Value call(const Builtin& builtin, const Value& self, Arguments given);

void require_filter(const std::string& name);
void require_test(const std::string& name);
Value filtered(const std::string& name, const Value& value, Arguments given);
bool passes(const std::string& name, const Value& value, Arguments given);

// value.name and value[key], as the sandboxed environment reads them.
Value attribute(const Value& value, const std::string& name);
Value item(const Value& value, const Value& key);
Value sliced(const Value& value, const Value& begin, const Value& end, const Value& step);
// A method of Python's value, bound to it; an undefined value where there is none.
std::optional<Value> method(const Value& value, const std::string& name);

Value negative(const Value& value);
Value computed(char sign, const Value& a, const Value& b);  // '|' for //
bool contains(const Value& all, const Value& one);

// range, dict, namespace, raise_exception, strftime_now.
std::optional<Value> global(const std::string& name, const std::optional<std::tm>& now);

}  // namespace attn::jinja
