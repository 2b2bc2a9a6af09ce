// The verbs of the command. Each function adds its subcommand to `app`; when that subcommand is the one
// called, its callback runs while the command line is parsed. `status` is the exit code, 0 when untouched.
#pragma once

#include <CLI/CLI.hpp>

namespace attn::tool {

void add_run(CLI::App& app, int& status);
void add_sdpa(CLI::App& app, int& status);
void add_explain(CLI::App& app, int& status);
void add_plot(CLI::App& app, int& status);
void add_show(CLI::App& app, int& status);
void add_demo(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_train(CLI::App& app, int& status);

}  // namespace attn::tool
