// The verbs of the command: the table that --help and the command line read.
#pragma once

#include <span>
#include <string_view>

#include "common/options.hpp"

namespace attn::tool {

struct VerbEntry {
  std::string_view name, summary;
  // Adds the verb's options and its callback, which runs when the command line names it. `status` is the exit code, 0
  // when untouched.
  void (*define)(Verb& verb, int& status);
};

// In the order of --help.
std::span<const VerbEntry> verbs() noexcept;
// Null where there is none of that name.
const VerbEntry* find_verb(std::string_view name) noexcept;

void define_demo(Verb& verb, int& status);
void define_run(Verb& verb, int& status);
void define_explain(Verb& verb, int& status);
void define_show(Verb& verb, int& status);
void define_plot(Verb& verb, int& status);
void define_report(Verb& verb, int& status);
void define_train(Verb& verb, int& status);
void define_sdpa(Verb& verb, int& status);
void define_check(Verb& verb, int& status);
void define_generate(Verb& verb, int& status);
void define_bench(Verb& verb, int& status);
void define_info(Verb& verb, int& status);

}  // namespace attn::tool
