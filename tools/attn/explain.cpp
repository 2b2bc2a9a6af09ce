// attn explain: one query's way through a module, in the terminal.
#include <unistd.h>

#include <memory>

#include "common/job.hpp"
#include "common/outputs.hpp"
#include "common/terminal.hpp"
#include "explain/walk.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr const char* kExplainExamples =
    "attn explain self-v1\n"
    "attn explain causal --query 3\n"
    "attn explain multihead --head 2 --seed 7\n"
    "attn explain causal --dropout 0.5 --train\n"
    "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' > x.csv\n"
    "printf 'hello\\nworld\\n' > words.txt\n"
    "attn explain simple --input x.csv --tokens words.txt\n"
    "attn explain --text 'The cat chased a mouse.'";

struct ExplainFlags {
  ModuleFlags module;
  InputFlags input;
  WalkOptions walk;
};

Walked walked(const Job& job) {
  Walked w{.module = job.flags.module,
           .config = config_of(job.flags, job.x.tensor.size(-1)),
           .parameters = job.module->state_dict(),
           .name = job.x.name,
           .x = job.x.tensor,
           .tokens = job.tokens,
           .context_tokens = job.context_tokens};
  if (job.context) w.context_name = job.context->name, w.context = job.context->tensor;
  if (has_weights(job.flags.module)) w.seed = job.flags.seed;
  return w;
}

void explain(const Verb& verb, const ExplainFlags& flags) {
  const Job job = prepare(verb, flags.module, flags.input, true);
  Trace steps;
  job.forward(&steps);
  const Walked what = walked(job);
  write_stdout(fitted(Walk(what, steps, flags.walk, Style::of_stdout()).text(), STDOUT_FILENO, 4));
  tell_beside(job.notes);
}

}  // namespace

void define_explain(Verb& verb, int&) {
  const auto flags = std::make_shared<ExplainFlags>();
  add_module_flags(verb, flags->module);
  add_input_flags(verb, flags->input);
  verb.add_option("--query N", flags->walk.query, "The token that asks, counted from 1.").default_is("2");
  verb.add_option("--key N", flags->walk.key, "A key that is shown even where others matter more, counted from 1.")
      .default_is("those of the largest weights alone");
  verb.add_option("--head N", flags->walk.head, "The head to show, counted from 1.");
  verb.examples(kExplainExamples);
  verb.callback([&verb, flags] { explain(verb, *flags); });
}

}  // namespace attn::tool
