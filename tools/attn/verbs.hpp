// The verbs of the command. Each function adds one; its callback runs when the command line names it. `status` is the
// exit code, 0 when untouched.
#pragma once

#include "common/options.hpp"

namespace attn::tool {

void add_run(Verbs& verbs, int& status);
void add_sdpa(Verbs& verbs, int& status);
void add_explain(Verbs& verbs, int& status);
void add_plot(Verbs& verbs, int& status);
void add_show(Verbs& verbs, int& status);
void add_demo(Verbs& verbs, int& status);
void add_info(Verbs& verbs, int& status);
void add_check(Verbs& verbs, int& status);
void add_report(Verbs& verbs, int& status);
void add_generate(Verbs& verbs, int& status);
void add_bench(Verbs& verbs, int& status);
void add_train(Verbs& verbs, int& status);

}  // namespace attn::tool
