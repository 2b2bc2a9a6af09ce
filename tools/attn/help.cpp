// attn help: what --help prints, and the manual pages in groff's man format: attn(1), and attn-VERB(1) of a verb.
#include <algorithm>
#include <cctype>
#include <memory>

#include "attn/version.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/utf8.hpp"
#include "help/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Text that groff takes as it is. Letters beyond ASCII are named by their number, which every output device can draw
// or replace.
std::string roff(std::string_view text) {
  std::string result;
  for (; !text.empty(); text.remove_prefix(first_character(text).length)) {
    const char c = text.front();
    if (const Character letter = first_character(text); letter.length > 1) {
      result += "\\[u" + upper(formatted("{:04x}", letter.code)) + "]";
      continue;
    }
    const bool first = result.empty() || result.back() == '\n';
    if (first && (c == '.' || c == '\'')) result += "\\&";
    result += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '\'' ? "\\(aq" : std::string(1, c);
  }
  return result;
}

std::string section(std::string_view title) { return formatted(".SH \"{}\"\n", title); }

std::string as_it_is(std::string_view text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

// Paragraphs are filled; lines that begin with a space, or that have columns, stay as they are.
std::string paragraphs(std::string_view text) {
  std::string result;
  for (const std::string& line : lines_of(text)) {
    const bool as_is = line.starts_with(' ') || line.find("  ") != std::string::npos;
    result += line.empty() ? ".PP\n" : as_is ? as_it_is(line) : roff(line) + "\n";
  }
  return result;
}

std::string entry(std::string_view left, std::string_view what) {
  return ".TP\n\\fB" + roff(left) + "\\fR\n" + paragraphs(what);
}

std::string title(const std::string& name, std::string_view summary) {
  std::string what(summary);
  if (what.ends_with('.')) what.pop_back();
  return ".\\\" Made by attn help --man.\n" +
         formatted(".TH \"{}\" 1 \"\" \"attn {}\" \"User Commands\"\n", upper(name), ATTN_VERSION) + section("NAME") +
         roff(name) + " \\- " + roff(what) + "\n";
}

std::string examples(std::string_view lines) { return section("EXAMPLES") + as_it_is(lines); }

std::string man_page() {
  std::string text = title("attn", kSummary) + section("SYNOPSIS") + "\\fBattn\\fR [OPTIONS] VERB\n";
  text += section("OPTIONS") + entry(kVersionOption.names, kVersionOption.what) +
          entry(kHelpOption.names, kHelpOption.what);
  text += section("VERBS");
  std::string pages;
  for (const VerbEntry& verb : verbs()) {
    text += entry(verb.name, verb.summary);
    pages += formatted("{}.BR \"attn\\-{}\" (1)", pages.empty() ? "" : ",\n", verb.name);
  }
  return text + section("EXIT STATUS") + roff(kExitCodes) + "\n" + examples(kExamples) + section("SEE ALSO") + pages +
         "\n";
}

std::string man_page(const Verb& verb) {
  std::string text = title("attn-" + verb.name(), verb.description());
  text += section("SYNOPSIS") + roff(usage_of(verb)) + "\n";
  std::string group = "Options", arguments, options;
  for (const auto& option : verb.options()) {
    const std::string told = entry(left_of(*option), option->description());
    if (option->positional()) {
      arguments += told;
      continue;
    }
    if (option->group() != group) options += formatted(".SS \"{}\"\n", roff(group = option->group()));
    options += told;
  }
  if (!arguments.empty()) text += section("ARGUMENTS") + arguments;
  text += section("OPTIONS") + entry(kHelpOption.names, kHelpOption.what) + options;
  if (!verb.notes().empty()) text += section("NOTES") + paragraphs(verb.notes());
  return text + examples(verb.examples()) + section("SEE ALSO") + ".BR attn (1)\n";
}

}  // namespace

void define_help(Verb& verb, int&) {
  struct Flags {
    std::string verb;
    bool man = false;
  };
  const auto flags = std::make_shared<Flags>();
  verb.add_option("VERB", flags->verb, "The verb to describe. Without it, all verbs are listed.").one_of(verb_names());
  verb.add_flag("--man", flags->man, "Print the manual page, as man and groff read it.");
  verb.examples(
      "attn help\n"
      "attn help train\n"
      "attn help train --man > attn-train.1");
  verb.callback([flags] {
    if (flags->verb.empty()) return write_stdout(flags->man ? man_page() : overview_text());
    int unused = 0;
    const auto asked = defined(*find_verb(flags->verb), unused);
    write_stdout(flags->man ? man_page(*asked) : help_text(*asked));
  });
}

}  // namespace attn::tool
