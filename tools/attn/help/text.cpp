#include "help/text.hpp"

#include <unistd.h>

#include <utility>
#include <vector>

#include "common/format.hpp"
#include "common/terminal.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

// Where descriptions begin; in a narrow terminal they stand below what they describe.
std::size_t description_column() noexcept { return text_columns() < 60 ? 6 : 24; }

// Each line filled to the width, from the column on that the first one begins at. A line that begins with a space stays
// as it is if it fits, or if it is a command, and so does one that has columns of its own and fits.
std::string filled(std::string_view text, std::size_t column) {
  const std::size_t columns = text_columns();
  std::string result;
  for (const std::string& line : lines_of(text)) {
    const bool fits = column + width_of(line) <= columns;
    const bool own_columns = line.starts_with(' ') || line.find("  ") != std::string::npos;
    const bool as_is = own_columns && (fits || (column == 0 && line.starts_with(' ')));
    if (!result.empty()) result.append("\n").append(line.empty() ? 0 : column, ' ');
    result.append(as_is ? line : wrapped(words_of(line), columns, own_columns ? column + 2 : column));
  }
  return result;
}

std::string help_line(std::string_view left, std::string_view what) {
  const std::size_t column = description_column();
  std::string text = "  " + std::string(left);
  const bool beside = width_of(text) + 2 <= column;  // two blanks at least
  text = beside ? padded(text, column) : text.append("\n").append(column, ' ');
  return text.append(filled(what, column)).append("\n");
}

std::string help_line(const CommonOption& option) { return help_line(option.names, option.what); }

std::string examples_text(std::string_view lines) {
  std::string text = "Examples:\n  ";
  for (const char c : lines) text.append(c == '\n' ? "\n  " : std::string(1, c));
  return text + "\n";
}

std::string verbs_text() {
  std::string text = "Verbs:\n";
  for (const VerbEntry& verb : verbs()) text += help_line(verb.name, verb.summary);
  return text;
}

}  // namespace

std::string greeting_text() {
  return filled(kSummary, 0) + "\n\n" + help_line("attn demo", "Begin here: six words, step by step.") +
         help_line("attn help VERB", "See what a verb does, its options and examples.") + "\n" + verbs_text();
}

std::string overview_text() {
  return filled(kSummary, 0) + "\nUsage: attn [OPTIONS] VERB\n\nOptions:\n" + help_line(kVersionOption) +
         help_line(kHelpOption) + "\n" + verbs_text() + "\n" + filled(kExitCodes, 0) + "\n\n" +
         examples_text(kExamples);
}

std::string usage_of(const Verb& verb) {
  std::string usage = formatted("attn {} [OPTIONS]", verb.name());
  for (const auto& option : verb.options()) {
    if (option->positional())
      usage += option->is_required() ? " " + option->name() : formatted(" [{}]", option->name());
  }
  return usage;
}

std::string left_of(const Option& option) {
  if (option.positional()) return option.name();
  return joined(option.names(), ",") + (option.value_name().empty() ? "" : " ") + option.value_name();
}

std::string help_text(const Verb& verb) {
  std::string arguments;
  std::vector<std::pair<std::string, std::string>> groups{{"Options", ""}};
  for (const auto& option : verb.options()) {
    const std::string line = help_line(left_of(*option), option->description());
    if (option->positional()) {
      arguments += line;
      continue;
    }
    if (groups.back().first != option->group()) groups.emplace_back(option->group(), "");
    groups.back().second += line;
  }
  groups.front().second += help_line(kHelpOption);
  std::string text = filled(verb.description(), 0) + "\nUsage: " + usage_of(verb) + "\n";
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  for (const auto& [heading, lines] : groups) text.append("\n").append(heading).append(":\n").append(lines);
  if (!verb.notes().empty()) text += "\n" + filled(verb.notes(), 0) + "\n";
  return fitted(text, STDOUT_FILENO) + "\n" + examples_text(verb.examples());
}

}  // namespace attn::tool
