// How builtins are called; tests, functions, and methods of what is no text.
#include "jinja/builtins.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

using Kind = Sequence::Kind;

// ---- tests

bool has_order(Call& c, bool less_first, bool negated) {
  require_defined(c.self), require_defined(c[0]);
  return less(less_first ? c.self : c[0], less_first ? c[0] : c.self) != negated;
}

bool has_rest(Call& c, const Value& by, std::size_t rest) { return equal(computed('%', c.self, by), integer(rest)); }

bool is_sequence(const Value& v) { return v.text() || v.dict() || v.is<Undefined>() || v.row(); }

bool is_iterable(const Value& v) {
  return v.text() || v.dict() || v.is<Undefined>() || v.sequence() || v.shared<Loop>();
}

bool is_callable(const Value& v) { return v.shared<const Function>() || v.shared<Loop>() || v.is<Undefined>(); }

bool has_case(Call& c, bool small) {
  const std::string all = shown(c.self);
  if (std::ranges::any_of(all, [](char one) { return (one & 0x80) != 0; })) unsupported("the case of " + all);
  const std::string lowered = lower(all), raised = upper(all);
  return lowered != raised && all == (small ? lowered : raised);
}

constexpr Builtin kAllTests[] = {
    {"!= ne", "other", [](Call& c) { return boolean(!equal(c.self, c[0])); }},
    {"!in", "seq", [](Call& c) { return boolean(!contains(c[0], c.self)); }},
    {"< lt lessthan", "other", [](Call& c) { return boolean(has_order(c, true, false)); }},
    {"<= le", "other", [](Call& c) { return boolean(has_order(c, false, true)); }},
    {"== eq equalto", "other", [](Call& c) { return boolean(equal(c.self, c[0])); }},
    {"> gt greaterthan", "other", [](Call& c) { return boolean(has_order(c, false, false)); }},
    {">= ge", "other", [](Call& c) { return boolean(has_order(c, true, true)); }},
    {"boolean", "", [](Call& c) { return boolean(c.self.is<bool>()); }},
    {"callable", "", [](Call& c) { return boolean(is_callable(c.self)); }},
    {"defined", "", [](Call& c) { return boolean(!c.self.is<Undefined>()); }},
    {"divisibleby", "num", [](Call& c) { return boolean(has_rest(c, c[0], 0)); }},
    {"even", "", [](Call& c) { return boolean(has_rest(c, integer(2), 0)); }},
    {"false", "", [](Call& c) { return boolean(c.self.is<bool>() && !truth(c.self)); }},
    {"float", "", [](Call& c) { return boolean(c.self.is<double>()); }},
    {"in", "seq", [](Call& c) { return boolean(contains(c[0], c.self)); }},
    {"integer", "", [](Call& c) { return boolean(c.self.is<std::int64_t>()); }},
    {"iterable", "", [](Call& c) { return boolean(is_iterable(c.self)); }},
    {"lower", "", [](Call& c) { return boolean(has_case(c, true)); }},
    {"mapping", "", [](Call& c) { return boolean(c.self.dict()); }},
    {"none", "", [](Call& c) { return boolean(c.self.is<None>()); }},
    {"number", "", [](Call& c) { return boolean(real(c.self).has_value()); }},
    {"odd", "", [](Call& c) { return boolean(has_rest(c, integer(2), 1)); }},
    {"sequence", "", [](Call& c) { return boolean(is_sequence(c.self)); }},
    {"string", "", [](Call& c) { return boolean(c.self.text()); }},
    {"true", "", [](Call& c) { return boolean(c.self.is<bool>() && truth(c.self)); }},
    {"undefined", "", [](Call& c) { return boolean(c.self.is<Undefined>()); }},
    {"upper", "", [](Call& c) { return boolean(has_case(c, false)); }},
};

// ---- functions

Value range(Call& c) {
  const auto number = [&](std::size_t i, std::int64_t otherwise) {
    const auto given = c.slots[i] ? whole(c[i]) : otherwise;
    if (!given) failed("range() of a " + kind_of(c[i]));
    return *given;
  };
  const std::int64_t first = number(0, 0), end = number(1, first), step = number(2, 1);
  constexpr std::int64_t kLongest = 100000;  // as the sandbox has it
  if (step == 0) failed("range() with a step of 0");
  List items;
  for (std::int64_t at = c.slots[1] ? first : 0; step > 0 ? at < end : at > end;) {
    if (items.size() == kLongest) failed("range() of more than 100000 numbers");
    items.push_back({at});
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return list(std::move(items), Kind::range);
}

// dict(…) and namespace(…) take pairs, or a dict, and named values.
Dict dict_of(Call& c) {
  Dict all;
  if (c.rest.values.size() > 1) failed("dict() with more than one argument");
  for (const Value& from : c.rest.values) {
    for (const Value& pair : from.dict() ? pairs_of(*from.dict()) : items_of(from)) {
      const List two = items_of(pair);
      if (two.size() != 2) failed("dict() of other than pairs");
      all.set(two[0], two[1]);
    }
  }
  for (const auto& [name, value] : c.rest.named) all.set(text(name), value);
  return all;
}

Value space(Call& c) {
  Dict all = dict_of(c);
  for (const auto& [name, value] : all.entries()) {
    if (!name.text() || name.text()->starts_with('_')) failed("a namespace with the name " + shown(name));
  }
  return {std::make_shared<Namespace>(Namespace{std::move(all)})};
}

Value raise(Call& c) {
  throw Error(Error::Kind::argument, "ChatTemplate", "a conversation that the model's template takes", c.text(0));
}

std::string time_text(const std::tm& now, const std::string& form) {
  std::string all;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '%') {
      all.push_back(form[i]);
      continue;
    }
    const std::string part = form.substr(i, form.compare(i, 2, "%-") == 0 ? 3 : 2);
    if (part.size() < 2 || std::string_view("aAbBdHIjmMpSyY%").find(part.back()) == std::string::npos) {
      unsupported("the time format " + part);
    }
    i += part.size() - 1;
    char buffer[200];
    all.append(buffer, std::strftime(buffer, sizeof buffer, part.c_str(), &now));
  }
  return all;
}

Value time(Call& c, const std::optional<std::tm>& now) {
  std::tm local{};
  const std::time_t clock = std::time(nullptr);
  localtime_r(&clock, &local);
  return text(time_text(now.value_or(local), c.text(0)));
}

constexpr Builtin kFunctions[] = {
    {"dict", "*", [](Call& c) { return dict(dict_of(c)); }},
    {"namespace", "*", space},
    {"raise_exception", "message?", raise},
    {"range", "/ start stop? step?", range},
};

// ---- methods, and what loops tell

Value view(Call& c, Kind kind) {
  List all = pairs_of(*c.self.dict());
  for (Value& pair : all) {
    if (kind != Kind::items) pair = Value(pair.sequence()->items[kind == Kind::keys ? 0 : 1]);
  }
  return list(std::move(all), kind);
}

Value get(Call& c) {
  key_of(c[0]);
  const Value* found = c.self.dict()->find(c[0]);
  return found ? *found : c.value(1);
}

constexpr Builtin kDict[] = {
    {"get", "/ key default?", get},
    {"items", "/", [](Call& c) { return view(c, Kind::items); }},
    {"keys", "/", [](Call& c) { return view(c, Kind::keys); }},
    {"values", "/", [](Call& c) { return view(c, Kind::values); }},
};

// The methods that Python has and attn lacks.
std::string_view lacking_of(const Value& value) {
  if (value.text()) {
    return "casefold center encode expandtabs format_map index isalnum isalpha isascii isdecimal isdigit isidentifier "
           "islower isnumeric isprintable isspace istitle isupper ljust maketrans partition rindex rjust rpartition "
           "swapcase translate zfill";
  }
  if (real(value)) {
    return "real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "
           "is_integer hex fromhex";
  }
  if (value.list(Kind::generator)) return "";
  return value.shared<Loop>() ? "changed cycle depth depth0"
         : value.dict()       ? "copy fromkeys"
         : value.sequence()   ? "copy count index start stop step isdisjoint mapping"
                              : "";
}

// The sandbox lets nobody change a list or a dict.
std::string_view changing_of(const Value& value) {
  if (value.dict()) return "clear pop popitem setdefault update";
  return value.list(Kind::list) ? "append clear extend insert pop remove reverse sort" : "";
}

std::optional<Value> of_loop(const Loop& loop, const std::string& name) {
  const std::size_t at = loop.at, size = loop.items.size();
  if (name == "index") return integer(at + 1);
  if (name == "index0") return integer(at);
  if (name == "revindex") return integer(size - at);
  if (name == "revindex0") return integer(size - at - 1);
  if (name == "first") return boolean(at == 0);
  if (name == "last") return boolean(at + 1 == size);
  if (name == "length") return integer(size);
  if (name == "previtem") return at > 0 ? loop.items[at - 1] : undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < size ? loop.items[at + 1] : undefined("there is no next item");
  return {};
}

const Builtin* found(std::span<const Builtin> all, std::string_view name) {
  const auto at = std::ranges::find_if(all, [&](const Builtin& one) { return listed(one.names, name); });
  return at == all.end() ? nullptr : &*at;
}

Value function_of(const Builtin& called, const Value& self) {
  return function(std::string(called.names), [self, &called](Arguments& given) { return call(called, self, given); });
}

// `word` is a parameter's name with its marks.
void check_argument(const std::optional<Value>& slot, std::string_view word, const std::string& name,
                    const std::string& of) {
  const bool optional = word.find_first_of("?!") != word.npos;
  if (!slot && !optional) failed("no " + name + " in " + of);
  if (slot && word.ends_with('!')) unsupported(of + ", of which it lacks " + name);
  if (slot && word.ends_with('$') && !slot->text() && !(optional && slot->is<None>())) {
    failed("the argument " + name + " that is a " + kind_of(*slot) + " in " + of);
  }
}

}  // namespace

const Table kTests{"test", kAllTests};

std::int64_t Call::integer(std::size_t i, std::int64_t otherwise) const {
  const auto number = has(i) ? whole(*slots[i]) : otherwise;
  if (!number) failed("a " + kind_of(*slots[i]) + " where an integer is needed");
  return *number;
}

bool listed(std::string_view names, std::string_view name) {
  for (std::size_t at = names.find(name); at < names.size(); at = names.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' ')) return true;
  }
  return false;
}

const Builtin& builtin(const Table& table, std::string_view name) {
  const Builtin* one = found(table.all, name);
  if (!one) unsupported(std::string("the ").append(table.kind).append(" ").append(name));
  return *one;
}

Call bound(std::string_view parameters, const Value& self, Arguments given, const std::string& of) {
  const bool unnamed = parameters.starts_with('/'), any = parameters.ends_with('*');
  Call made{self};
  std::size_t next = 0;
  const auto by_name = [&](std::string_view name) {
    const auto at = std::ranges::find(given.named, name, [](const auto& entry) { return entry.first; });
    return unnamed ? given.named.end() : at;
  };
  for (std::size_t begin = unnamed ? 2 : 0; begin < parameters.size() - any;) {
    const std::size_t end = std::min(parameters.find(' ', begin), parameters.size());
    const std::string_view word = parameters.substr(begin, end - begin);
    const std::string name(word.substr(0, word.find_first_of("?!$")));
    std::optional<Value>& slot = made.slots.emplace_back();
    if (next < given.values.size()) {
      slot = std::move(given.values[next++]);
    } else if (const auto at = by_name(name); at != given.named.end()) {
      slot = std::move(at->second);
      given.named.erase(at);
    }
    check_argument(slot, word, name, of);
    begin = end + 1;
  }
  given.values.erase(given.values.begin(), given.values.begin() + static_cast<std::ptrdiff_t>(next));
  if (!any && !given.values.empty()) failed("too many of " + of);
  if (!any && !given.named.empty()) failed("the argument " + given.named[0].first + " in " + of);
  made.rest = std::move(given);
  return made;
}

Value call(const Builtin& builtin, const Value& self, Arguments given) {
  charge(32 + (self.text() ? self.text()->size() / 16 : 0) + given.values.size() * sizeof(Value));
  Call made = bound(builtin.parameters, self, std::move(given), "the arguments of " + std::string(builtin.names));
  return builtin.call(made);
}

std::optional<Value> global(const std::string& name, const std::optional<std::tm>& now) {
  if (const Builtin* one = found(kFunctions, name)) return function_of(*one, none());
  if (listed("cycler joiner lipsum self super", name)) unsupported("the name " + name);
  if (name != "strftime_now") return {};
  return function(name, [now](Arguments& given) {
    Call made = bound("format$", none(), given, "the arguments of strftime_now");
    return time(made, now);
  });
}

std::optional<Value> method(const Value& value, const std::string& name) {
  if (listed(lacking_of(value), name)) {
    unsupported(value.shared<Loop>() ? "loop." + name : "the method " + name + " of a " + kind_of(value));
  }
  if (const Loop* loop = value.shared<Loop>()) return of_loop(*loop, name);
  if (listed(changing_of(value), name)) {
    return function(name, [value](Arguments&) -> Value {
      failed("a change of a " + kind_of(value) + ", which the sandbox forbids");
    });
  }
  const Builtin* own = value.text() ? found(kTexts.all, name) : value.dict() ? found(kDict, name) : nullptr;
  if (!own) return {};
  if (value.safe()) unsupported("the method " + name + " of a safe text");
  return function_of(*own, value);
}

}  // namespace attn::jinja
