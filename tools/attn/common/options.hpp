// The command line of a verb: its options say where their values go, what they may be, and how --help tells of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/format.hpp"

namespace attn::tool {

// Throws Error (argument), which says how to mend what was typed. An empty `found` is none.
[[noreturn]] void refuse(std::string_view who, std::string_view expected, std::string_view found,
                         std::string_view mend = {});

// Takes a text as a value; null, or what was expected where it is none.
const char* read_value(std::string_view text, std::string& value);
const char* read_value(std::string_view text, double& value);
const char* read_value(std::string_view text, int& value);
const char* read_value(std::string_view text, std::int64_t& value);
const char* read_value(std::string_view text, std::uint64_t& value);  // -1 is 2⁶⁴ - 1, as seeds are taken
template <class T>
const char* read_value(std::string_view text, std::optional<T>& value) {
  return read_value(text, value.emplace());
}
const char* read_value(std::string_view text, std::vector<std::string>& values);  // one more of them

// A value that an option has before the command line is read, as --help tells it; empty for a list, or where there is
// none.
template <class T>
std::string default_text(const T& value) {
  if constexpr (std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::integral<T>) {
    return std::to_string(value);
  } else if constexpr (std::floating_point<T>) {
    return shortest(value);
  } else {
    return {};
  }
}

class Option {
 public:
  using Reader = std::function<const char*(std::string_view)>;
  enum class Kind { flag, value, list };

  Option(std::string_view names, Kind kind, Reader read, std::string what, std::string group);

  // --help tells this as the default in place of the value that the option has.
  Option& default_is(std::string text) { return default_ = std::move(text), *this; }
  // Names that a shell offers, which other values may be.
  Option& offers(std::vector<std::string> names) { return offered_ = std::move(names), *this; }
  Option& required() { return required_ = true, *this; }
  // Given only beside that option, or beside one of those of several calls.
  Option& needs(const Option& other) { return needs_.push_back(&other), *this; }
  // Never given beside that option, which would leave it without effect.
  Option& not_beside(const Option& other) { return not_beside_.push_back(&other), *this; }
  Option& one_of(std::vector<std::string> names) { return choices_ = std::move(names), *this; }
  Option& between(double least, double most) { return range_ = {least, most}, *this; }
  Option& at_least(double least) { return between(least, std::numeric_limits<double>::max()); }
  Option& positive() { return at_least(std::numeric_limits<double>::denorm_min()); }
  // A list's value is split there.
  Option& delimiter(char c) { return delimiter_ = c, *this; }

  bool given() const noexcept { return given_; }
  const std::string& name() const noexcept { return names_.front(); }

  // These document it: --help, the manual page, the completions of shells.
  const std::vector<std::string>& names() const noexcept { return names_; }
  Kind kind() const noexcept { return kind_; }
  bool positional() const noexcept { return !names_.front().starts_with('-'); }
  bool is_required() const noexcept { return required_; }
  const std::string& value_name() const noexcept { return value_name_; }
  const std::string& group() const noexcept { return group_; }
  const std::vector<std::string>& offered() const noexcept { return choices_.empty() ? offered_ : choices_; }
  // Tells what it means, and its default.
  std::string description() const;

 private:
  friend class Verb;

  // Throws Error (argument) for a value that it does not take, and for a second one.
  void take(std::string_view text);
  // An empty one, too. In place of another value that is a variable which the shell does not know.
  bool takes_text() const;
  void check(std::string_view text) const;
  void check_others() const;

  std::vector<std::string> names_;
  Kind kind_;
  Reader read_;
  std::string value_name_, what_, group_, default_;
  bool required_ = false, given_ = false;
  std::vector<const Option*> needs_, not_beside_;
  std::vector<std::string> choices_, offered_;
  std::optional<std::pair<double, double>> range_;
  char delimiter_ = 0;
};

class Verb {
 public:
  Verb(std::string name, std::string description);

  // "--colours,--colors NAME": names of one option, and what --help calls its value: FILE and FOLDER, which shells
  // complete, N, …; without dashes an argument, in its place on the line. `value` has to live until the verb has run.
  template <class T>
  Option& add_option(std::string_view names, T& value, std::string what) {
    constexpr bool list = std::same_as<T, std::vector<std::string>>;
    Option& option = add(
        names, list ? Option::Kind::list : Option::Kind::value,
        [&value](std::string_view text) { return read_value(text, value); }, std::move(what));
    return option.default_is(default_text(value));
  }
  Option& add_flag(std::string_view names, bool& value, std::string what);
  // The heading in --help of the options that are added from here on.
  void group(std::string heading) { group_ = std::move(heading); }
  // Below the options in --help: paragraphs, of which lines that begin with a space stay as they are; and commands, a
  // line each.
  void notes(std::string text) { notes_ = std::move(text); }
  void examples(std::string lines) { examples_ = std::move(lines); }
  void callback(std::function<void()> run) { run_ = std::move(run); }

  const std::string& name() const noexcept { return name_; }
  const std::string& description() const noexcept { return description_; }
  const std::string& notes() const noexcept { return notes_; }
  const std::string& examples() const noexcept { return examples_; }
  const std::vector<std::unique_ptr<Option>>& options() const noexcept { return options_; }
  // The option of that name, or null.
  Option* find(std::string_view name) const;
  bool given(std::string_view name) const { return find(name) != nullptr && find(name)->given(); }
  // Names of the options under that heading that the command line holds.
  std::vector<std::string> given_of(std::string_view group) const;

  // Reads the words behind the verb; false where they ask for help. Throws Error (argument), which says where to look.
  bool parse(const std::vector<std::string_view>& words);
  void run() const { run_(); }

 private:
  Option& add(std::string_view names, Option::Kind kind, Option::Reader read, std::string what);
  void read(const std::vector<std::string_view>& words);
  // Reads the option at `word`, which its values follow; returns how many.
  std::size_t read_option(std::string_view word, const std::vector<std::string_view>& words, std::size_t next);
  bool looks_like_option(std::string_view word) const;
  std::vector<std::string> option_names() const;
  void read_argument(std::string_view word);
  void check() const;

  std::string name_, description_, group_ = "Options", notes_, examples_;
  std::vector<std::unique_ptr<Option>> options_;
  std::function<void()> run_;
};

}  // namespace attn::tool
