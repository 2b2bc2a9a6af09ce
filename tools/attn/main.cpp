// The command `attn`: verbs, exit codes, and the one place where errors become messages.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "common/command_line.hpp"
#include "common/terminal.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr int kUsage = 2, kData = 3;

constexpr const char* kFooter =
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

std::unique_ptr<CLI::App> make_app(int& status) {
  auto app = std::make_unique<CLI::App>("Attention mechanisms, every step open to look at; the numbers are PyTorch's.",
                                        "attn");
  constexpr std::size_t option_column = 24;
  app->get_formatter()->column_width(option_column);
  app->get_formatter()->label("SUBCOMMAND", "VERB");
  app->get_formatter()->label("Positionals", "Arguments");
  app->set_version_flag("--version", "attn " ATTN_VERSION, "Print the version and exit");
  app->set_help_flag("-h,--help", "Print this help and exit; attn VERB --help for a verb");
  app->require_subcommand(1);
  app->footer(kFooter);
  add_demo(*app, status);
  add_run(*app, status);
  add_explain(*app, status);
  add_show(*app, status);
  add_plot(*app, status);
  add_report(*app, status);
  add_train(*app, status);
  add_sdpa(*app, status);
  add_check(*app, status);
  add_generate(*app, status);
  add_bench(*app, status);
  add_info(*app, status);
  for (CLI::App* verb : app->get_subcommands({})) {
    verb->group("Verbs")->set_help_flag("-h,--help", "Print this help and exit");
  }
  return app;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> arguments) {
  const auto verbs = app.get_subcommands();
  const std::string hint = verbs.empty() ? "attn --help" : "attn " + verbs.front()->get_name() + " --help";
  std::string message = error.what();
  if (verbs.empty() && arguments.size() < 2) message = "a verb is missing";
  if (verbs.empty() && arguments.size() > 1) {
    message = fmt::format("there is no {} \"{}\"", arguments[1][0] == '-' ? "option" : "verb", arguments[1]);
  }
  return complain(fmt::format("{}; try {}", printable(message), hint), kUsage);
}

int parse(CLI::App& app, std::span<char* const> arguments, const int& status) {
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    return status;
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
  } catch (const CLI::CallForVersion& version) {
    write_stdout(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, arguments);
  }
  return 0;
}

int run(std::span<char* const> arguments) {
  try {
    set_command_line(arguments);
    int status = 0;
    const auto app = make_app(status);
    const int result = parse(*app, arguments, status);
    // What a verb printed by way of stdio must have arrived too.
    return std::fflush(stdout) == 0 ? result : complain("standard output could not be written", kData);
  } catch (const ClosedPipe&) {
    return kData;
  } catch (const Error& error) {
    return complain(error.what(), error.kind() == Error::Kind::argument ? kUsage : kData);
  } catch (const std::bad_alloc&) {
    return complain(
        "out of memory: steps and weights are matrices of tokens × tokens for each head (10000 tokens: 400 MB); "
        "shorten the input, split its batch, or save fewer of them",
        kData);
  } catch (const std::exception& error) {
    return complain(printable(error.what()), kData);
  }
}

}  // namespace
}  // namespace attn::tool

int main(int argc, char** argv) {
#ifdef SIGPIPE
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, handled where it happens
#endif
  return attn::tool::run({argv, static_cast<std::size_t>(argc)});
}
