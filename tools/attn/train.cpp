// attn train: a GPT from text.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <unistd.h>

#include <csignal>
#include <exception>
#include <memory>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "common/format.hpp"
#include "common/outputs.hpp"
#include "common/signals.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "train/divergence.hpp"
#include "train/files.hpp"
#include "train/lock.hpp"
#include "train/progress.hpp"
#include "train/run.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct TrainFlags {
  TrainSettings settings;
  std::string precision = "highest", gelu = "tanh";
  std::vector<std::string> text;
  std::string out, curve, tokenizer, on_nan = "stop";
  std::int64_t save_every = 100, log_every = 10, until = 0;
  double minutes = 0;
  bool resume = false, force = false, json = false;
};

constexpr const char* kTrainFooter =
    "Two files are written: --out, the model in Hugging Face GPT-2's names, and beside\n"
    "it NAME.training.safetensors, the checkpoint that --resume continues from, bit\n"
    "for bit. Each is whole or untouched, whenever the run is killed. While it trains,\n"
    "NAME.training.lock keeps other runs from the same --out; one that a kill left\n"
    "does not. Ctrl-C saves and stops, and so does a reader of --json that goes away.\n"
    "A loss or gradient that is not finite ends the run, which keeps its checkpoint.\n"
    "With --on-nan skip such a step changes nothing, and is tried with other batches,\n"
    "at most 10 in a row. Weights that are not finite are never saved.\n"
    "Losses are in nats a token (a byte, without --tokenizer).\n"
    "Exit codes: 0 done, 2 wrong usage, 3 bad data or files, 130 stopped by Ctrl-C\n"
    "(143: terminated), all saved.\n"
    "\n"
    "Examples:\n"
    "  attn train --text book.txt --out model.safetensors\n"
    "  attn train --text book.txt --out model.safetensors --resume\n"
    "  attn train --text book.txt --out m.safetensors --layers 2 --minutes 5 --json";

volatile std::sig_atomic_t stopped_by = 0;

extern "C" void stop_after_this_step(int signal) {
  stopped_by = signal;
  end_cleanly_by(signal);  // a second Ctrl-C ends it at once
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = stop_after_this_step;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A step allocates and frees the same large tensors again and again. Handed back to the system in between, each of
// their pages costs a fault.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kept = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kept);
  mallopt(M_TRIM_THRESHOLD, kept);
#endif
}

std::unique_ptr<Run> start(const Verb& verb, TrainFlags& flags, TrainingFiles& files, const Tokenizer& tokenizer,
                           std::optional<Text>& text) {
  if (flags.resume) {
    auto given = given_settings(verb);
    if (flags.force) given.emplace_back("--force");
    if (!given.empty()) {
      throw Error(Error::Kind::argument, given.front(),
                  "neither settings nor --force beside --resume, which has all from its checkpoint",
                  joined(given, " "));
    }
    auto run = Run::resume(files.checkpoint(), flags.text, tokenizer, text);
    files.resumed(*run);
    return run;
  }
  if (!flags.force) files.require_new();
  flags.settings.model.vocab_size = tokenizer.vocab_size();
  flags.settings.model.precision = parse_precision(flags.precision);
  if (flags.gelu != "tanh" && flags.gelu != "exact") {
    throw Error(Error::Kind::argument, "--gelu", "tanh or exact", flags.gelu);
  }
  flags.settings.model.gelu = flags.gelu == "tanh" ? Gelu::tanh : Gelu::exact;
  text.emplace(flags.text, tokenizer, flags.settings.validation, flags.settings.model.context_length);
  return std::make_unique<Run>(flags.settings, *text);
}

void introduce(Run& run, const Text& text) {
  std::int64_t weights = 0;
  for (const Parameter* p : run.model().parameters()) weights += p->value.numel();
  write_stderr(formatted("{:.2f} million weights; {} tokens to train on, {} to validate by{}\n",
                         static_cast<double>(weights) / 1e6, text.training_tokens(), text.validation_tokens(),
                         run.steps_done() == 0 ? "" : formatted("; from step {}", run.steps_done())));
}

void conclude(const Run& run, const Progress& progress, const TrainingFiles& files, bool json) {
  std::string text = formatted("loss {}\n", figure::sparkline(run.losses(), kColumns - 5));
  if (!run.validations().empty()) {
    text += formatted("validation loss {:.4f} nats a token at step {}\n", run.validations().back().second,
                      run.validations().back().first);
  }
  text += formatted("step {} of {}, {}, {:.0f} tokens/s\nwrote {}, {}, {}\n", run.steps_done(), run.settings().steps,
                    duration_text(progress.seconds()), progress.tokens_per_second(), escaped(files.model().string()),
                    escaped(files.checkpoint().string()), escaped(files.curve().string()));
  if (!run.skipped().empty()) {
    text += formatted("skipped {} times, the last at step {}: loss or gradient not finite\n", run.skipped().size(),
                      static_cast<std::int64_t>(run.skipped().back()));
  }
  if (!run.done()) text += "continue with the same --text and --out, and --resume\n";
  json ? write_stderr(text) : write_stdout(text);
}

void train(const Verb& verb, TrainFlags& flags, int& status) {
  keep_freed_memory();
  TrainingFiles files(flags.out, flags.curve);
  Outputs outputs;  // refused before the work, not after it
  outputs.declare("--out", flags.out, {".safetensors"});
  outputs.declare("the checkpoint", files.checkpoint().string(), {".safetensors"});
  outputs.declare("--curve", files.curve().string(), {".svg"});
  const TrainingLock lock(io::Destination(files.model(), "--out"));
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (!flags.tokenizer.empty()) tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(flags.tokenizer));
  std::optional<Text> text;
  const auto run = start(verb, flags, files, *tokenizer, text);
  introduce(*run, *text);

  catch_signals();
  const auto form = flags.json              ? Progress::Form::json
                    : isatty(STDERR_FILENO) ? Progress::Form::bar
                                            : Progress::Form::lines;
  Progress progress(form, *run, flags.log_every, flags.minutes);
  Divergence divergence(flags.on_nan == "skip" ? Divergence::Then::skip : Divergence::Then::stop, files);
  std::exception_ptr unread;  // nobody reads --json any more
  const auto enough = [&] {
    return run->done() || unread || stopped_by != 0 || (flags.until > 0 && run->steps_done() >= flags.until) ||
           (flags.minutes > 0 && progress.seconds() >= 60 * flags.minutes);
  };
  while (!enough()) {
    const Run::Step step = run->step();
    divergence.check(step, *run);
    try {
      progress.show(step);
    } catch (const io::ClosedPipe&) {
      unread = std::current_exception();
    }
    if (step.finite() && run->steps_done() % flags.save_every == 0) files.save(*run);
  }
  progress.finish();
  if (!files.hold(*run)) files.save(*run);
  conclude(*run, progress, files, flags.json);
  if (unread) std::rethrow_exception(unread);
  if (stopped_by != 0) status = 128 + stopped_by;
}

}  // namespace

void define_train(Verb& verb, int& status) {
  const auto flags = std::make_shared<TrainFlags>();
  verb.add_option("--text", flags->text, "Files of text; - is standard input").value_name("FILE…").required();
  verb.add_option("--out", flags->out, "The model, .safetensors").value_name("FILE").required();
  verb.add_flag("--resume", flags->resume, "Continue from the checkpoint beside --out");
  verb.add_flag("--force", flags->force, "Replace the model that --out names, with no --resume");
  verb.add_option("--on-nan", flags->on_nan, "A loss or gradient that is not finite: stop, or skip\nthat step")
      .value_name("WHAT")
      .one_of({"stop", "skip"});
  verb.add_option("--tokenizer", flags->tokenizer, "Folder with GPT-2's vocab.json and merges.txt.\nDefault: bytes")
      .value_name("DIR");
  verb.add_option("--minutes", flags->minutes, "Save and stop after so long. Default: when --steps are done")
      .value_name("N")
      .positive();
  verb.add_option("--until", flags->until, "Save and stop after this step, as if interrupted there")
      .value_name("N")
      .positive();
  verb.add_option("--save-every", flags->save_every, "Steps between checkpoints").value_name("N").positive();
  verb.add_option("--log-every", flags->log_every, "Steps between lines").value_name("N").positive();
  verb.add_option("--curve", flags->curve, "The loss curve, .svg. Default: beside --out").value_name("FILE");
  verb.add_flag("--json", flags->json, "Progress as JSON, an object a line, on standard output");
  add_train_settings(verb, flags->settings, flags->precision, flags->gelu);
  verb.footer(kTrainFooter);
  verb.callback([&verb, flags, &status] { train(verb, *flags, status); });
}

}  // namespace attn::tool
