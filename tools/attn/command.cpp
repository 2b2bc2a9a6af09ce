// Verbs, exit codes, and the one place where errors become messages.
#include "command.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "common/command_line.hpp"
#include "common/format.hpp"
#include "common/signals.hpp"
#include "common/suggest.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "core/memory.hpp"
#include "help/text.hpp"
#include "io/output_file.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr int kUsage = 2, kData = 3;

constexpr const char* kLessMemory =
    "use fewer tokens, smaller sizes or a smaller batch, save fewer steps, or raise the memory limit (ulimit -v)";

int complain(const std::string& message, int status) {
  write_stderr(fitted("attn: error: " + message + "\n", STDERR_FILENO));
  return status;
}

// "[load] expected …" begins at "expected": the names of the library's functions tell nobody who types a command
// anything.
std::string told(const Error& error) {
  const std::string message = error.what();
  const std::string& op = error.op();
  const bool function = op == "load" || op.starts_with("load_") || op.starts_with("parse_") || op.starts_with("save_");
  return function ? message.substr(op.size() + 3) : message;
}

// As Unix tools end there: by the signal, which a shell shows as 141.
int end_as_a_writer_without_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return 128 + SIGPIPE;
}

// False where all is said: by the help, or by an error, which sets `status`.
bool parse(Verb& verb, std::span<char* const> words, int& status) {
  try {
    if (verb.parse({words.begin(), words.end()})) return true;
    write_stdout(help_text(verb));
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool asks = what.ends_with('?');
    status = complain(formatted("{}{} attn {} --help", what, asks ? " Try" : "; try", verb.name()), kUsage);
  }
  return false;
}

std::string unknown(std::string_view word) {
  const bool option = word.starts_with('-');
  std::vector<std::string> names = option ? std::vector<std::string>{"--help", "--version"} : verb_names();
  const std::string guess = did_you_mean(word, names);
  return formatted("there is no {} \"{}\"; {}", option ? "option" : "verb", escaped(word),
                   guess.empty() ? "try attn --help" : guess);
}

// The first word: an option of the command itself, or a verb, to which the rest belongs.
int call(std::span<char* const> words) {
  int status = 0;
  if (words.empty()) return write_stdout(greeting_text()), status;
  const std::string_view first = words.front();
  if (const VerbEntry* entry = find_verb(first)) {
    const auto verb = defined(*entry, status);
    if (parse(*verb, words.subspan(1), status)) verb->run();
  } else if (first == "-h" || first == "--help") {
    write_stdout(overview_text());
  } else if (first == "--version") {
    write_stdout("attn " ATTN_VERSION "\n");
  } else {
    status = complain(unknown(first), kUsage);
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
    return complain(told(error), error.kind() == Error::Kind::argument ? kUsage : kData);
  } catch (const OutOfMemory& error) {
    return complain(formatted("{}; {}", error.what(), kLessMemory), kData);
  } catch (const std::bad_alloc&) {
    return complain(formatted("out of memory; {}", kLessMemory), kData);
  } catch (const std::exception& error) {
    return complain(escaped(error.what()), kData);
  }
}

}  // namespace attn::tool
