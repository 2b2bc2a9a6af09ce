// Templates find these without defining them: filters, tests, functions, methods of Python's values, and operators.
#pragma once

#include <ctime>
#include <span>

#include "jinja/value.hpp"

namespace attn::jinja {

// A builtin is handed this. Arguments lie in the order of its parameters; those not given are empty.
struct Call {
  const Value& self;
  std::vector<std::optional<Value>> slots{};
  Arguments rest{};  // of one that takes any

  const Value& operator[](std::size_t i) const { return *slots[i]; }
  bool has(std::size_t i) const { return slots[i] && !slots[i]->is<None>(); }
  bool flag(std::size_t i) const { return slots[i] && truth(*slots[i]); }
  Value value(std::size_t i, const Value& otherwise = none()) const { return slots[i] ? *slots[i] : otherwise; }
  std::string text(std::size_t i, const char* otherwise = "") const { return slots[i] ? shown(*slots[i]) : otherwise; }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;  // None counts as not given
};

struct Builtin {
  std::string_view names;  // one, or several with blanks between them
  // "old new$ count?": the first are needed, "$" takes only texts, and one with "!" is lacking here. "/" before them
  // takes no names, and "*" after them takes any further ones.
  std::string_view parameters;
  Value (*call)(Call&);
};
struct Table {
  std::string_view kind;
  std::span<const Builtin> all;
};
extern const Table kFilters, kTests, kTexts;

bool listed(std::string_view names, std::string_view name);         // with blanks between them
const Builtin& builtin(const Table& table, std::string_view name);  // unsupported() where there is none
Call bound(std::string_view parameters, const Value& self, Arguments given, const std::string& of);
Value call(const Builtin& builtin, const Value& self, Arguments given);

inline Value filtered(const std::string& name, const Value& value, Arguments given) {
  return call(builtin(kFilters, name), value, std::move(given));
}
inline bool passes(const std::string& name, const Value& value, Arguments given) {
  return truth(call(builtin(kTests, name), value, std::move(given)));
}

// value.name and value[key], as the sandboxed environment reads them.
Value attribute(const Value& value, const std::string& name);
Value item(const Value& value, const Value& key);
Value sliced(const Value& value, const Value& begin, const Value& end, const Value& step);
// A method of Python's value, bound to it, or what a loop tells; none where there is none.
std::optional<Value> method(const Value& value, const std::string& name);

Value computed(char sign, const Value& a, const Value& b);  // '|' for //
bool contains(const Value& all, const Value& one);
void require_defined(const Value& value);

// range, dict, namespace, raise_exception, strftime_now.
std::optional<Value> global(const std::string& name, const std::optional<std::tm>& now);

}  // namespace attn::jinja
