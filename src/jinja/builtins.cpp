#include "jinja/builtins.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

std::vector<std::string> words_of(std::string_view parameters) {
  std::vector<std::string> words;
  while (!parameters.empty()) {
    const std::size_t end = std::min(parameters.find(' '), parameters.size());
    words.emplace_back(parameters.substr(0, end));
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
  }
  return words;
}

Value range(Arguments& given) {
  std::int64_t numbers[3] = {0, 0, 1};
  const std::size_t n = given.values.size();
  if (n == 0 || n > 3 || !given.named.empty()) failed("range() with other than one to three numbers");
  for (std::size_t i = 0; i < n; ++i) {
    if (!whole(given.values[i], numbers[n == 1 ? 1 : i])) failed("range() of a " + kind_of(given.values[i]));
  }
  const auto [begin, end, step] = numbers;
  constexpr std::int64_t kLongest = 100000;  // as the sandbox has it
  if (step == 0) failed("range() with a step of 0");
  List items;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() == kLongest) failed("range() of more than 100000 numbers");
    items.push_back({at});
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return list(std::move(items), Sequence::Kind::range);
}

// Of dict(…) and namespace(…): pairs, or a dict, and named values.
Dict dict_of(const Arguments& given) {
  Dict all;
  if (given.values.size() > 1) failed("dict() with more than one argument");
  for (const Value& from : given.values) {
    if (const Dict* d = from.dict()) {
      all = *d;
      continue;
    }
    for (const Value& pair : items_of(from)) {
      const List two = items_of(pair);
      if (two.size() != 2) failed("dict() of other than pairs");
      all.set(two[0], two[1]);
    }
  }
  for (const auto& [name, value] : given.named) all.set(text(name), value);
  return all;
}

Value space(Arguments& given) {
  auto made = std::make_shared<Namespace>();
  const Dict all = dict_of(given);
  for (const auto& [name, value] : all.entries()) {
    if (!name.text() || name.text()->starts_with('_')) failed("a namespace with the name " + shown(name));
    made->values[*name.text()] = value;
  }
  return {made};
}

Value raise(Arguments& given) {
  const std::string why = given.values.empty() ? "" : shown(given.values[0]);
  throw Error(Error::Kind::argument, "ChatTemplate", "a conversation that the model's template takes", why);
}

std::string time_text(const std::tm& now, const std::string& form) {
  std::string all;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '%') {
      all.push_back(form[i]);
      continue;
    }
    const std::string part = form.substr(i, form.substr(i).starts_with("%-") ? 3 : 2);
    if (part.size() < 2 || std::string_view("aAbBdHIjmMpSyY%").find(part.back()) == std::string::npos) {
      unsupported("the time format " + part);
    }
    i += part.size() - 1;
    char buffer[200];
    all.append(buffer, std::strftime(buffer, sizeof buffer, part.c_str(), &now));
  }
  return all;
}

}  // namespace

std::string Call::text(std::size_t i, std::string otherwise) const {
  return slots[i] ? shown(*slots[i]) : std::move(otherwise);
}

std::int64_t Call::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  std::int64_t number = 0;
  if (!whole(*slots[i], number)) failed("a " + kind_of(*slots[i]) + " where an integer is needed");
  return number;
}

bool listed(std::string_view names, std::string_view name) { return std::ranges::count(words_of(names), name) > 0; }

const Builtin* found(std::span<const Builtin> all, std::string_view name) {
  const auto at = std::ranges::find_if(all, [&](const Builtin& one) { return listed(one.names, name); });
  return at == all.end() ? nullptr : &*at;
}

Value call(const Builtin& builtin, const Value& self, Arguments given) {
  auto words = words_of(builtin.parameters);
  const std::string of = "the arguments of " + std::string(builtin.names);
  const bool unnamed = !words.empty() && words.front() == "/", any = !words.empty() && words.back() == "*";
  if (unnamed) words.erase(words.begin());
  if (any) words.pop_back();
  Call made{self, {}, {}};
  made.slots.resize(words.size());
  for (std::size_t i = 0; i < given.values.size(); ++i) {
    if (i >= words.size() && !any) failed("too many of " + of);
    if (i < words.size()) {
      made.slots[i] = given.values[i];
    } else {
      made.rest.values.push_back(given.values[i]);
    }
  }
  for (auto& [name, value] : given.named) {
    std::size_t at = 0;
    while (at < words.size() && words[at] != name && words[at] != name + "?" && words[at] != name + "!") ++at;
    if (unnamed || at == words.size() || made.slots[at]) {
      if (!any || at < words.size()) failed(std::string("the argument ").append(name).append(" in ").append(of));
      made.rest.named.emplace_back(name, value);
    } else {
      made.slots[at] = value;
    }
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (made.slots[i] && words[i].ends_with('!'))
      unsupported(of + ", of which it lacks " + words[i].substr(0, words[i].size() - 1));
    if (!made.slots[i] && !words[i].ends_with('?') && !words[i].ends_with('!')) failed("no " + words[i] + " in " + of);
  }
  charge(32);
  return builtin.call(made);
}

std::optional<Value> global(const std::string& name, const std::optional<std::tm>& now) {
  if (name == "range") return function(name, range);
  if (name == "dict") return function(name, [](Arguments& given) { return dict(dict_of(given)); });
  if (name == "namespace") return function(name, space);
  if (name == "raise_exception") return function(name, raise);
  if (name == "strftime_now") {
    return function(name, [now](Arguments& given) {
      const bool one = given.values.size() + given.named.size() == 1;
      const Value& form = one && given.named.empty() ? given.values[0] : one ? given.named[0].second : undefined("");
      if (!form.text()) failed("strftime_now() without a format");
      std::tm local{};
      const std::time_t clock = std::time(nullptr);
      localtime_r(&clock, &local);
      return text(time_text(now.value_or(local), *form.text()));
    });
  }
  for (const std::string_view other : {"cycler", "joiner", "lipsum", "self", "super"}) {
    if (name == other) unsupported("the name " + name);
  }
  return {};
}

}  // namespace attn::jinja
