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
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "core/memory.hpp"
#include "core/suggest.hpp"
#include "help/text.hpp"
#include "io/output_file.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr const char* kLessMemory =
    "use fewer tokens, smaller sizes or a smaller batch, save fewer steps, or raise the memory limit (ulimit -v)";

// A command line that is none, with the advice where to look.
class UsageError : public Error {
 public:
  UsageError(const Error& error, std::string message) : Error(error), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

int complain(const std::string& message, int status) {
  write_stderr(fitted("attn: error: " + rank_prefix() + message + "\n", STDERR_FILENO));
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

// False where all is said by the help.
bool parse(Verb& verb, std::span<char* const> words) {
  try {
    return verb.parse({words.begin(), words.end()});
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool asks = what.ends_with('?');
    throw UsageError(error, formatted("{}{} attn {} --help", what, asks ? " Try" : "; try", verb.name()));
  }
}

void run(const VerbEntry& entry, std::span<char* const> words, int& status) {
  const auto verb = defined(entry, status);
  distributed::Transport* const ranks = entry.over_ranks ? launched_ranks() : nullptr;
  bool asks_to_run = false;
  together(ranks, [&] { asks_to_run = parse(*verb, words); });
  require_alike(ranks, "the command line", command_line());
  if (asks_to_run) return verb->run();
  if (!ranks || ranks->rank() == 0) write_stdout(help_text(*verb));
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
    run(*entry, words.subspan(1), status);
    return status;
  }
  const bool help = first == "-h" || first == "--help";
  if (!help && first != "--version") return complain(unknown(first), 2);
  if (words.size() > 1) {
    throw Error(Error::Kind::argument, first, "no further argument", words[1], help ? "try attn help VERB" : "");
  }
  write_stdout(help ? overview_text() : "attn " ATTN_VERSION "\n");
  return status;
}

}  // namespace

int run_command(std::span<char* const> arguments) {
  try {
    set_command_line(arguments);
    return end_ranks(call(arguments.subspan(std::min<std::size_t>(arguments.size(), 1))));
  } catch (const io::ClosedPipe&) {
    fail_ranks(128 + SIGPIPE);
    return end_as_a_writer_without_reader();
  } catch (const FailedElsewhere& other) {
    return fail_ranks(other.status());
  } catch (const UsageError& error) {
    return fail_ranks(complain(error.what(), exit_code(error)));
  } catch (const Error& error) {
    return fail_ranks(complain(told(error), exit_code(error)));
  } catch (const OutOfMemory& error) {
    return fail_ranks(complain(formatted("{}; {}", error.what(), kLessMemory), exit_code(error)));
  } catch (const std::bad_alloc& error) {
    return fail_ranks(complain(formatted("out of memory; {}", kLessMemory), exit_code(error)));
  } catch (const std::exception& error) {
    return fail_ranks(complain(escaped(error.what()), exit_code(error)));
  }
}

}  // namespace attn::tool
