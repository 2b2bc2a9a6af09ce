// attn train: a GPT from text.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <memory>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/io.hpp"
#include "common/format.hpp"
#include "common/outputs.hpp"
#include "common/signals.hpp"
#include "common/terminal.hpp"
#include "train/progress.hpp"
#include "train/run.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct TrainFlags {
  TrainSettings settings;
  std::string precision = "highest", gelu = "tanh";
  std::vector<std::string> text;
  std::string out, curve, tokenizer;
  std::int64_t save_every = 100, log_every = 10, until = 0;
  double minutes = 0;
  bool resume = false, json = false;
};

constexpr const char* kTrainFooter =
    "Two files are written: --out, the model in Hugging Face GPT-2's names, and beside\n"
    "it NAME.training.safetensors, the checkpoint that --resume continues from, bit\n"
    "for bit. Each is whole or untouched, whenever the run is killed.\n"
    "Ctrl-C saves and stops, and so does a reader of --json that goes away.\n"
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

std::filesystem::path beside(const std::string& out, const char* extension) {
  std::filesystem::path path = out;
  return path.replace_extension(extension);
}

std::string curve_svg(const Run& run) {
  figure::Series training{"training", {}, run.losses()}, validation{"validation", {}, {}};
  for (std::size_t i = 0; i < training.y.size(); ++i) training.x.push_back(static_cast<double>(i + 1));
  for (const auto& [step, loss] : run.validations()) {
    validation.x.push_back(static_cast<double>(step));
    validation.y.push_back(loss);
  }
  const figure::Series all[] = {training, validation};
  return figure::line_chart(all, {.title = "Loss", .x = "step", .y = "nats a token"});
}

// The checkpoint first: the model and the curve can be written again from it.
void save(Run& run, const TrainFlags& flags) {
  run.save(beside(flags.out, ".training.safetensors"));
  save_gpt(flags.out, run.model(), {{"steps", std::to_string(run.steps_done())}});
  io::save_text(flags.curve, curve_svg(run));
}

std::unique_ptr<Run> start(const Verb& verb, TrainFlags& flags, const Tokenizer& tokenizer, std::optional<Text>& text) {
  if (flags.resume) {
    const auto given = given_settings(verb);
    if (!given.empty()) {
      throw Error(Error::Kind::argument, given.front(),
                  "no settings beside --resume, which has them from its checkpoint", joined(given, " "));
    }
    return Run::resume(beside(flags.out, ".training.safetensors"), flags.text, tokenizer, text);
  }
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

void conclude(const Run& run, const Progress& progress, const TrainFlags& flags) {
  std::string text = formatted("loss {}\n", figure::sparkline(run.losses(), kColumns - 5));
  if (!run.validations().empty()) {
    text += formatted("validation loss {:.4f} nats a token at step {}\n", run.validations().back().second,
                      run.validations().back().first);
  }
  text += formatted("step {} of {}, {}, {:.0f} tokens/s\nwrote {}, {}, {}\n", run.steps_done(), run.settings().steps,
                    duration_text(progress.seconds()), progress.tokens_per_second(), printable(flags.out),
                    printable(beside(flags.out, ".training.safetensors").string()), printable(flags.curve));
  if (!run.done()) text += "continue with the same --text and --out, and --resume\n";
  flags.json ? write_stderr(text) : write_stdout(text);
}

void train(const Verb& verb, TrainFlags& flags, int& status) {
  keep_freed_memory();
  if (flags.curve.empty()) flags.curve = beside(flags.out, ".svg").string();
  Outputs outputs;  // refused before the work, not after it
  outputs.declare("--out", flags.out, {".safetensors"});
  outputs.declare("the checkpoint", beside(flags.out, ".training.safetensors").string(), {".safetensors"});
  outputs.declare("--curve", flags.curve, {".svg"});
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (!flags.tokenizer.empty()) tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(flags.tokenizer));
  std::optional<Text> text;
  const auto run = start(verb, flags, *tokenizer, text);
  introduce(*run, *text);

  catch_signals();
  const auto form = flags.json              ? Progress::Form::json
                    : isatty(STDERR_FILENO) ? Progress::Form::bar
                                            : Progress::Form::lines;
  Progress progress(form, *run, flags.log_every, flags.minutes);
  std::int64_t saved = -1;
  std::exception_ptr unread;  // nobody reads --json any more
  const auto enough = [&] {
    return run->done() || unread || stopped_by != 0 || (flags.until > 0 && run->steps_done() >= flags.until) ||
           (flags.minutes > 0 && progress.seconds() >= 60 * flags.minutes);
  };
  while (!enough()) {
    const Run::Step step = run->step();
    try {
      progress.show(step);
    } catch (const io::ClosedPipe&) {
      unread = std::current_exception();
    }
    if (run->steps_done() % flags.save_every == 0) save(*run, flags), saved = run->steps_done();
  }
  progress.finish();
  if (saved != run->steps_done()) save(*run, flags);
  conclude(*run, progress, flags);
  if (unread) std::rethrow_exception(unread);
  if (stopped_by != 0) status = 128 + stopped_by;
}

}  // namespace

void add_train(Verbs& verbs, int& status) {
  Verb& verb = verbs.add("train", "Train a GPT on text, to a model file");
  const auto flags = std::make_shared<TrainFlags>();
  verb.add_option("--text", flags->text, "Files of text; - is standard input").value_name("FILE…").required();
  verb.add_option("--out", flags->out, "The model, .safetensors").value_name("FILE").required();
  verb.add_flag("--resume", flags->resume, "Continue from the checkpoint beside --out");
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
