// attn completions: what a shell needs to complete this command: verbs, options, their values, and files.
#include <memory>
#include <vector>

#include "common/format.hpp"
#include "common/terminal.hpp"
#include "help/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

// A shell offers files and folders for a value that is one, and else the option's words.
bool is_path(const Option& option) {
  return option.value_name().starts_with("FILE") || option.value_name() == "FOLDER";
}
std::string offered_by(const Option& option) { return joined(option.offered(), " "); }

// The first sentence.
std::string brief(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  text = text.substr(0, text.find(". "));
  while (text.ends_with('.') || text.ends_with(':')) text.remove_suffix(1);
  return std::string(text);
}

// Every one of `special` behind a backslash.
std::string marked(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// In single quotes, for bash and zsh; fish takes a quote in them behind a backslash too.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

template <class F>
void each_verb(F&& f) {
  int unused = 0;
  for (const VerbEntry& entry : verbs()) f(*defined(entry, unused));
}

std::string option_names(const Verb& verb) {
  std::vector<std::string> names;
  for (const auto& option : verb.options()) {
    if (!option->positional()) names.insert(names.end(), option->names().begin(), option->names().end());
  }
  names.insert(names.end(), {"-h", "--help"});
  return joined(names, " ");
}

// ---- bash -----------------------------------------------------------------------------

// No reply leaves the value to the completion of files, which `complete -o default` asks for.
std::string bash_value(const Option& option) {
  std::string what = "compopt +o default 2>/dev/null";
  if (!option.offered().empty()) what = "_attn_reply " + shell_quoted(offered_by(option));
  if (option.offered().empty() && is_path(option)) what = ":";
  return formatted("        {}) {}; return ;;\n", joined(option.names(), "|"), what);
}

std::string bash_verb(const Verb& verb) {
  std::string values, arguments;
  bool argument_is_path = false;
  for (const auto& option : verb.options()) {
    if (option->positional()) {
      arguments = offered_by(*option);
      argument_is_path = is_path(*option);
    } else if (option->kind() != Option::Kind::flag) {
      values += bash_value(*option);
    }
  }
  const std::string options = option_names(verb);
  if (arguments.empty() && !argument_is_path) arguments = options;
  return formatted("    {})\n      options={} arguments={}\n", verb.name(), shell_quoted(options),
                   shell_quoted(arguments)) +
         (values.empty() ? "" : "      case $prev in\n" + values + "      esac\n") + "      ;;\n";
}

// ---- zsh ------------------------------------------------------------------------------

std::string zsh_action(const Option& option) {
  const std::string words = offered_by(option);
  if (is_path(option))
    return words.empty() ? "_files" : "{_alternative \"words:word:(" + words + ")\" \"files:file:_files\"}";
  return words.empty() ? " " : "(" + words + ")";
}

std::string zsh_option(const Option& option) {
  const std::string message = option.positional() ? option.name() : option.value_name();
  if (option.positional()) return " \\\n        " + shell_quoted("1:" + message + ":" + zsh_action(option));
  std::string text;
  const bool list = option.kind() == Option::Kind::list;
  for (const std::string& name : option.names()) {
    const bool flag = option.kind() == Option::Kind::flag;
    std::string word = list ? "*" : "";
    word += name;
    word += flag ? "[" : "=[";
    word += marked(brief(option.description()), "[]:\\") + "]";
    if (!flag) word += ":" + message + ":" + zsh_action(option);
    text += " \\\n        " + shell_quoted(word);
  }
  return text;
}

// ---- fish -----------------------------------------------------------------------------

std::string fish_option(const Verb& verb, const Option& option) {
  const std::string begin = "complete -c attn -n '__attn_verb " + verb.name() + "'";
  const std::string words = option.offered().empty() ? "" : " -a " + shell_quoted(offered_by(option));
  const std::string what = " -d " + shell_quoted(brief(option.description()));
  if (option.positional()) return begin + (is_path(option) ? " -F" : " -f") + words + what + "\n";
  std::string text;
  for (const std::string& name : option.names()) {
    text += begin + " -l " + name.substr(name.find_first_not_of('-'));
    if (option.kind() != Option::Kind::flag) text += is_path(option) ? " -r -F" : " -x";
    text += words + what + "\n";
  }
  return text;
}

std::string bash_completions() {
  std::string text =
      "# Completions of attn for bash. Made by attn completions bash.\n"
      "_attn_reply() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
      "\n"
      "_attn() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} options= arguments=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    _attn_reply " +
      shell_quoted(joined(verb_names(), " ") + " --version -h --help") +
      "\n"
      "    return\n"
      "  fi\n"
      "  # bash takes --flag=value as three words.\n"
      "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  each_verb([&](const Verb& verb) { text += bash_verb(verb); });
  return text +
         "  esac\n"
         "  if [[ $cur == -* ]]; then _attn_reply \"$options\"; else _attn_reply \"$arguments\"; fi\n"
         "}\n"
         "complete -o bashdefault -o default -F _attn attn\n";
}

std::string zsh_completions() {
  std::string text =
      "#compdef attn\n"
      "# Completions of attn for zsh. Made by attn completions zsh.\n"
      "_attn() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a verbs\n"
      "    verbs=(";
  for (const VerbEntry& verb : verbs()) {
    text += "\n      " + shell_quoted(formatted("{}:{}", verb.name, brief(verb.summary)));
  }
  text +=
      "\n    )\n"
      "    _describe -t verbs verb verbs\n"
      "    _arguments '--version[" +
      brief(kVersionOption.what) + "]' {-h,--help}'[" + brief(kHelpOption.what) +
      "]'\n"
      "    return\n"
      "  fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $verb in\n";
  each_verb([&](const Verb& verb) {
    text +=
        "    " + verb.name() + ")\n      _arguments {-h,--help}" + shell_quoted("[" + brief(kHelpOption.what) + "]");
    for (const auto& option : verb.options()) text += zsh_option(*option);
    text += "\n      ;;\n";
  });
  return text +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _attn ]]; then _attn \"$@\"; else compdef _attn attn; fi\n";
}

std::string fish_completions() {
  std::string text =
      "# Completions of attn for fish. Made by attn completions fish.\n"
      "function __attn_verb\n"
      "    set -l words (commandline -opc)\n"
      "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
      "end\n"
      "complete -c attn -f\n"
      "complete -c attn -n 'test (count (commandline -opc)) -eq 1' -l version -d " +
      shell_quoted(brief(kVersionOption.what)) + "\ncomplete -c attn -s h -l help -d " +
      shell_quoted(brief(kHelpOption.what)) + "\n";
  for (const VerbEntry& verb : verbs()) {
    text += formatted("complete -c attn -n 'test (count (commandline -opc)) -eq 1' -a {} -d {}\n", verb.name,
                      shell_quoted(brief(verb.summary)));
  }
  each_verb([&](const Verb& verb) {
    for (const auto& option : verb.options()) text += fish_option(verb, *option);
  });
  return text;
}

}  // namespace

void define_completions(Verb& verb, int&) {
  const auto shell = std::make_shared<std::string>();
  verb.add_option("SHELL", *shell, "The shell: bash, zsh or fish.").required().one_of({"bash", "zsh", "fish"});
  verb.notes(
      "cmake --install and the Debian package put completions where each shell looks for them. Without them, bash and "
      "fish read the lines below as they stand; zsh looks for a file _attn in a folder of its fpath.");
  verb.examples(
      "attn completions bash > attn.bash    # and in ~/.bashrc: . ./attn.bash\n"
      "attn completions zsh > _attn\n"
      "attn completions fish > attn.fish    # in ~/.config/fish/completions");
  verb.callback([shell] {
    write_stdout(*shell == "bash" ? bash_completions() : *shell == "zsh" ? zsh_completions() : fish_completions());
  });
}

}  // namespace attn::tool
