// The verbs of the command: the table that the command line, --help, manual pages and completions read.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"

namespace attn::tool {

struct VerbEntry {
  std::string_view name, summary;
  // Adds the verb's options and its callback, which runs when the command line names it. `status` is the exit code, 0
  // when untouched.
  void (*define)(Verb& verb, int& status);
  bool over_ranks = false;  // a launcher's processes run it together (common/ranks.hpp)
};

// In the order of --help.
std::span<const VerbEntry> verbs() noexcept;
std::vector<std::string> verb_names();
// Null where there is none of that name.
const VerbEntry* find_verb(std::string_view name) noexcept;
// The verb with its options; `status` has to outlive it.
std::unique_ptr<Verb> defined(const VerbEntry& entry, int& status);

void define_demo(Verb& verb, int& status);
void define_run(Verb& verb, int& status);
void define_explain(Verb& verb, int& status);
void define_show(Verb& verb, int& status);
void define_plot(Verb& verb, int& status);
void define_report(Verb& verb, int& status);
void define_experiment(Verb& verb, int& status);
void define_train(Verb& verb, int& status);
void define_generate(Verb& verb, int& status);
void define_chat(Verb& verb, int& status);
void define_embed(Verb& verb, int& status);
void define_tokens(Verb& verb, int& status);
void define_sdpa(Verb& verb, int& status);
void define_draw(Verb& verb, int& status);
void define_check(Verb& verb, int& status);
void define_bench(Verb& verb, int& status);
void define_info(Verb& verb, int& status);
void define_help(Verb& verb, int& status);
void define_completions(Verb& verb, int& status);

}  // namespace attn::tool
