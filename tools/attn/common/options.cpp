#include "common/options.hpp"

#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "common/format.hpp"
#include "core/suggest.hpp"

namespace attn::tool {
namespace {

template <class T>
const char* read_number(std::string_view text, T& value, const char* expected) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const std::optional<T> number = number_in<T>(text);
  value = number.value_or(value);
  return number ? nullptr : expected;
}

// Digits alone are a whole number, which may be too large.
template <class T>
const char* read_whole(std::string_view text, T& value) {
  const std::string_view digits = text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  const bool whole = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  const char* const fitting = sizeof(T) == 4 ? "a whole number of 32 bits" : "a whole number of 64 bits";
  return read_number(text, value, whole ? fitting : "a whole number");
}

std::string range_text(double least, double most) {
  const bool endless = most == std::numeric_limits<double>::max();  // infinity is no number to count with
  if (least == std::numeric_limits<double>::denorm_min()) {
    return endless ? "a positive number" : "a number above 0 and at most " + shortest(most);
  }
  if (endless) return "a number from " + shortest(least) + " on";
  return formatted("a number from {} to {}", least, most);
}

}  // namespace

void refuse(std::string_view who, std::string_view expected, std::string_view found, std::string_view mend) {
  throw Error(Error::Kind::argument, who, expected, found.empty() ? "none" : found, mend);
}

const char* read_value(std::string_view text, std::string& value) {
  value = text;
  return nullptr;
}

const char* read_value(std::string_view text, double& value) { return read_number(text, value, "a number"); }
const char* read_value(std::string_view text, int& value) { return read_whole(text, value); }
const char* read_value(std::string_view text, std::int64_t& value) { return read_whole(text, value); }

const char* read_value(std::string_view text, std::uint64_t& value) {
  if (!text.starts_with('-')) return read_whole(text, value);
  std::int64_t negative = 0;
  const char* expected = read_value(text, negative);
  value = static_cast<std::uint64_t>(negative);
  return expected;
}

const char* read_value(std::string_view text, std::vector<std::string>& values) {
  values.emplace_back(text);
  return nullptr;
}

Option::Option(std::string_view names, Kind kind, Reader read, std::string what, std::string group)
    : names_(split(names.substr(0, names.find(' ')), ',')),
      kind_(kind),
      read_(std::move(read)),
      value_name_(names.substr(std::min(names.find(' '), names.size() - 1) + 1)),
      what_(std::move(what)),
      group_(std::move(group)) {}

void Option::take(std::string_view text) {
  if (kind_ == Kind::value && given_) refuse(name(), "one value", text, "it is given twice");
  given_ = true;
  for (const std::string& part : delimiter_ == 0 ? std::vector{std::string(text)} : split(text, delimiter_)) {
    check(part);
    if (const char* expected = read_(part)) refuse(name(), expected, part);
    if (part.empty() && !takes_text()) refuse(name(), "a value", "an empty text");
  }
}

bool Option::takes_text() const {
  const std::string& value = positional() ? name() : value_name_;
  return kind_ == Kind::flag || value.starts_with("TEXT") || value.starts_with("TOKEN");
}

void Option::check(std::string_view text) const {
  if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), text) == choices_.end()) {
    refuse(name(), "one of " + joined(choices_, ", "), text, did_you_mean(text, choices_));
  }
  double number = 0;
  if (!range_) return;
  const auto [least, most] = *range_;
  if (read_value(text, number) != nullptr || !(number >= least && number <= most)) {
    refuse(name(), std::isinf(number) ? "a finite number" : range_text(least, most), text);
  }
}

void Option::check_others() const {
  if (!given_) return;
  std::vector<std::string> needed;
  for (const Option* other : needs_) needed.push_back(other->name());
  if (!needs_.empty() && std::none_of(needs_.begin(), needs_.end(), [](const Option* o) { return o->given(); })) {
    refuse(name(), joined(needed, " or ") + " beside it", "");
  }
  for (const Option* other : not_beside_) {
    if (other->given()) refuse(name(), "no " + other->name() + " beside it", "both", "leave one of them out");
  }
}

std::string Option::description() const {
  if (default_.empty()) return what_;
  return what_ + (what_.ends_with('.') || what_.ends_with(':') ? " " : "\n") + "Default: " + default_ + ".";
}

Verb::Verb(std::string name, std::string description) : name_(std::move(name)), description_(std::move(description)) {}

Option& Verb::add_flag(std::string_view names, bool& value, std::string what) {
  const auto read = [&value](std::string_view) -> const char* {
    value = true;
    return nullptr;
  };
  return add(names, Option::Kind::flag, read, std::move(what));
}

Option& Verb::add(std::string_view names, Option::Kind kind, Option::Reader read, std::string what) {
  return *options_.emplace_back(std::make_unique<Option>(names, kind, std::move(read), std::move(what), group_));
}

Option* Verb::find(std::string_view name) const {
  for (const auto& option : options_) {
    if (std::find(option->names_.begin(), option->names_.end(), name) != option->names_.end()) return option.get();
  }
  return nullptr;
}

std::vector<std::string> Verb::option_names() const {
  std::vector<std::string> names{"--help"};
  for (const auto& option : options_) {
    if (!option->positional()) names.insert(names.end(), option->names_.begin(), option->names_.end());
  }
  return names;
}

std::vector<std::string> Verb::given_of(std::string_view group) const {
  std::vector<std::string> names;
  for (const auto& option : options_) {
    if (option->group_ == group && option->given()) names.push_back(option->name());
  }
  return names;
}

bool Verb::parse(const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) {
    if (word == "--") break;
    if (word == "-h" || word == "--help") return false;
  }
  read(words);
  check();
  return true;
}

void Verb::read(const std::vector<std::string_view>& words) {
  bool options = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!options || word == "-" || !word.starts_with('-')) {
      read_argument(word);
    } else if (word == "--") {
      options = false;
    } else {
      i += read_option(word, words, i + 1);
    }
  }
}

bool Verb::looks_like_option(std::string_view word) const {
  return word.starts_with("--") || (word.starts_with('-') && find(word) != nullptr);
}

std::size_t Verb::read_option(std::string_view word, const std::vector<std::string_view>& words, std::size_t next) {
  const std::size_t equals = word.find('=');
  Option* option = find(word.substr(0, equals));
  if (option == nullptr) refuse("attn " + name_, "options of this verb", word, did_you_mean(word, option_names()));
  const bool flag = option->kind_ == Option::Kind::flag;
  if (equals != std::string_view::npos) {
    if (flag) refuse(option->name(), "no value", word.substr(equals + 1));
    option->take(word.substr(equals + 1));
    return 0;
  }
  if (flag) return option->take(""), 0;
  // A list goes on to the next option; "-" is standard input, "-1" a value.
  std::size_t taken = 0;
  const auto more = [&] { return next + taken < words.size() && !looks_like_option(words[next + taken]); };
  const auto dashed = [&] { return words[next + taken].size() > 1 && words[next + taken].starts_with('-'); };
  if (!more()) {
    const bool option_there = next < words.size() && words[next].size() > 2;
    refuse(option->name(), option_there ? "a value; one that begins so is written behind =" : "a value",
           option_there ? words[next] : "");
  }
  do option->take(words[next + taken++]);
  while (option->kind_ == Option::Kind::list && more() && !dashed());
  return taken;
}

void Verb::read_argument(std::string_view word) {
  for (const auto& option : options_) {
    const bool more = !option->given() || option->kind_ == Option::Kind::list;
    if (option->positional() && more) return option->take(word);
  }
  refuse("attn " + name_, "no further argument", word);
}

void Verb::check() const {
  for (const auto& option : options_) {
    if (option->required_ && !option->given()) refuse("attn " + name_, option->name(), "");
    option->check_others();
  }
}

}  // namespace attn::tool
