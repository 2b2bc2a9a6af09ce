// Verbs, exit codes, and the one place where errors become messages.
#include "command.hpp"

#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <string>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "common/command_line.hpp"
#include "common/format.hpp"
#include "common/signals.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "core/memory.hpp"
#include "io/output_file.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr int kUsage = 2, kData = 3;

constexpr const char* kLessMemory =
    "use fewer tokens, smaller sizes or a smaller batch, save fewer steps, or raise the memory limit (ulimit -v)";

constexpr const char* kMainFooter =
    "Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 bad data or files.\n"
    "\n"
    "Examples:\n"
    "  attn demo\n"
    "  attn explain self-v1\n"
    "  printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' | attn run simple --input -\n"
    "  attn run --help";

int complain(const std::string& message, int status) {
  write_stderr("attn: error: " + message + "\n");
  return status;
}

// As Unix tools end there: by the signal, which a shell shows as 141.
int end_as_a_writer_without_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return 128 + SIGPIPE;
}

std::string help() {
  std::string text =
      "Attention mechanisms, every step open to look at; the numbers are PyTorch's.\n"
      "Usage: attn [OPTIONS] VERB\n\nOptions:\n" +
      help_line("--version", "Print the version and exit") +
      help_line("-h,--help", "Print this help and exit; attn VERB --help for a verb") + "\nVerbs:\n";
  for (const VerbEntry& verb : verbs()) text += help_line(verb.name, verb.summary);
  return text + "\n" + kMainFooter + "\n";
}

// False where all is said: by the help, or by an error, which sets `status`.
bool parse(Verb& verb, std::span<char* const> words, int& status) {
  try {
    if (verb.parse({words.begin(), words.end()})) return true;
    write_stdout(verb.help());
  } catch (const Error& error) {
    status = complain(formatted("{}; try attn {} --help", error.what(), verb.name()), kUsage);
  }
  return false;
}

// The first word: an option of the command itself, or a verb, to which the rest belongs.
int call(std::span<char* const> words) {
  int status = 0;
  if (words.empty()) return complain("a verb is missing; try attn --help", kUsage);
  const std::string_view first = words.front();
  if (const VerbEntry* entry = find_verb(first)) {
    Verb verb{std::string(entry->name), std::string(entry->summary)};
    entry->define(verb, status);
    if (parse(verb, words.subspan(1), status)) verb.run();
  } else if (first == "-h" || first == "--help") {
    write_stdout(help());
  } else if (first == "--version") {
    write_stdout("attn " ATTN_VERSION "\n");
  } else {
    status = complain(formatted("there is no {} \"{}\"; try attn --help", first.starts_with('-') ? "option" : "verb",
                                escaped(first)),
                      kUsage);
  }
  return status;
}

}  // namespace

int run_command(std::span<char* const> arguments) {
  try {
    set_command_line(arguments);
    return call(arguments.subspan(std::min<std::size_t>(arguments.size(), 1)));
  } catch (const io::ClosedPipe&) {
    return end_as_a_writer_without_reader();
  } catch (const Error& error) {
    return complain(error.what(), error.kind() == Error::Kind::argument ? kUsage : kData);
  } catch (const OutOfMemory& error) {
    return complain(formatted("{}; {}", error.what(), kLessMemory), kData);
  } catch (const std::bad_alloc&) {
    return complain(formatted("out of memory; {}", kLessMemory), kData);
  } catch (const std::exception& error) {
    return complain(escaped(error.what()), kData);
  }
}

}  // namespace attn::tool
