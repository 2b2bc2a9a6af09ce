#include "help/man.hpp"

#include <algorithm>
#include <cctype>

#include "attn/version.hpp"
#include "common/format.hpp"
#include "help/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

// Text that groff takes as it is. Letters beyond ASCII are named by their number, which every output device can draw
// or replace.
std::string roff(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      const bool first = result.empty() || result.back() == '\n';
      if (first && (text[i] == '.' || text[i] == '\'')) result += "\\&";
      result += text[i] == '\\' ? "\\e" : text[i] == '-' ? "\\-" : text[i] == '\'' ? "\\(aq" : std::string(1, text[i]);
      ++i;
      continue;
    }
    const std::size_t size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    unsigned code = byte & (0x7fu >> size);
    for (std::size_t k = 1; k < size; ++k) code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3fu);
    std::string hex = formatted("{:04x}", code);
    std::ranges::transform(hex, hex.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    result += "\\[u" + hex + "]";
    i += size;
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

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string title(const std::string& name, std::string_view summary) {
  std::string what(summary);
  if (what.ends_with('.')) what.pop_back();
  return ".\\\" Made by attn help --man.\n" +
         formatted(".TH \"{}\" 1 \"\" \"attn {}\" \"User Commands\"\n", upper(name), ATTN_VERSION) + section("NAME") +
         roff(name) + " \\- " + roff(what) + "\n";
}

std::string examples(std::string_view lines) { return section("EXAMPLES") + as_it_is(lines); }

}  // namespace

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

}  // namespace attn::tool
