#include "help/text.hpp"

#include <utility>
#include <vector>

#include "common/format.hpp"
#include "common/terminal.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr std::size_t kColumn = 24;  // where descriptions begin

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// Each line filled to the width, from the column on that the first one begins at. A line that begins with a space, or
// that has columns of its own, stays as it is.
std::string filled(std::string_view text, std::size_t column) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool as_is = line.starts_with(' ') || line.find("  ") != std::string_view::npos;
    if (!result.empty()) result.append("\n").append(line.empty() ? 0 : column, ' ');
    result.append(as_is ? std::string(line) : wrapped(words_of(line), kColumns, column));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string help_line(std::string_view left, std::string_view what) {
  std::string text = padded("  " + std::string(left), kColumn);
  if (width_of(text) > kColumn || text.back() != ' ') text.append("\n").append(kColumn, ' ');
  return text.append(filled(what, kColumn)).append("\n");
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
  return std::string(kSummary) + "\n\n" + help_line("attn demo", "Begin here: six words, step by step.") +
         help_line("attn help VERB", "See what a verb does, its options and examples.") + "\n" + verbs_text();
}

std::string overview_text() {
  return std::string(kSummary) + "\nUsage: attn [OPTIONS] VERB\n\nOptions:\n" + help_line(kVersionOption) +
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
  return text + "\n" + examples_text(verb.examples());
}

}  // namespace attn::tool
