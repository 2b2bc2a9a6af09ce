// attn train: a model from text, or a released one further.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/pretrained.hpp"
#include "common/format.hpp"
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "common/text_model.hpp"
#include "io/file.hpp"
#include "kernels/targets.hpp"
#include "train/conclude.hpp"
#include "train/estimate.hpp"
#include "train/files.hpp"
#include "train/process.hpp"
#include "train/progress.hpp"
#include "train/ranks.hpp"
#include "train/training.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr double kRateOfReleased = 5e-5;   // of what is learned already, little is to be forgotten
constexpr std::int64_t kWorthATrial = 10;  // steps: fewer are done before their time is known

struct TrainFlags {
  TrainSettings settings;
  std::string precision = "highest", gelu = "tanh";
  std::vector<std::string> text;
  std::string from, out, curve, tokenizer, on_nan = "stop", ranks, scheme = "auto";
  std::int64_t save_every = 100, keep_every = 0, log_every = 10, until = 0;
  double minutes = 0;
  bool resume = false, force = false, json = false, shard = false, keep_weights = false;
};

constexpr const char* kTrainNotes =
    "The defaults make a small model and take minutes on two cores. A model that learns more, and takes an hour or "
    "more, has for example --layers 6 --heads 6 --width 384 --context 256. Before the first step a trial step is "
    "timed, and a message says how long the run will take.\n\n"
    "With --from a released model is trained further: all of its weights, kept in float32, on texts of --context "
    "tokens (128, or the model's own context where that is shorter), with its own tokenizer. --lr is then 0.00005, "
    "unless it is given. --out is a folder, which gets config.json, "
    "model.safetensors and the tokenizer's files, as Hugging Face's libraries read them; the checkpoint in it is "
    "model.training.safetensors. The folder appears with all of its files at once, and --force replaces all of an "
    "older one. The tokenizer of a GGUF file stays in that file: name it by --tokenizer to generate or to resume.\n\n"
    "Otherwise three files are written: --out, the model in the names of Hugging Face's files, and beside it "
    "NAME.training.safetensors, the checkpoint from which --resume continues bit for bit, and NAME.svg, the loss "
    "curve. A file that is called model.safetensors has its config.json beside it, as in a folder of Hugging Face's. "
    "None of them may be there yet, unless --force is given. Where the validation loss was lowest before the "
    "last step, NAME.best.safetensors has the model of that step, and a message says when the text begins to be "
    "learned by heart. With --keep-every N the model of every Nth step is kept as NAME.step-N.safetensors; --resume "
    "takes it again, and --force removes what an older run has kept. Each is whole or untouched, whenever the run is "
    "killed. While it trains, NAME.training.lock keeps other runs from writing to the same --out; the file that a "
    "killed run leaves behind blocks nobody. Ctrl-C saves and stops, and so does a reader of --json that goes "
    "away.\n\n"
    "A loss or gradient that is not finite ends the run, which keeps its checkpoint. With --on-nan skip such a step "
    "changes nothing and is tried with other batches, at most 10 in a row. Weights that are not finite are never "
    "saved. Losses are in nats a token, which is a byte without --tokenizer.\n\n"
    "On ranks, as in mpirun -n 8 attn train … --ranks data=4,sequence=2, each computes its part of every batch and "
    "text. A checkpoint goes on with any ranks, which are told by --ranks, --scheme, --shard and "
    "--keep-weights each time; docs/training-on-ranks.md says where the bits are the same.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, 3 for bad data or files, 130 when Ctrl-C stopped the "
    "run and 143 when SIGTERM did. In both cases all is saved; under mpirun, if it leaves the time.";

constexpr const char* kTrainExamples =
    "attn train --text book.txt --out model.safetensors\n"
    "attn train --text book.txt --out model.safetensors --resume\n"
    "attn train --text book.txt --out m.safetensors --layers 2 --minutes 5 --json\n"
    "attn train --text book.txt --out llama.safetensors --family llama\n"
    "attn train --from llama/ --text book.txt --out tuned/ --steps 200 --batch 4";

bool is_folder(const TrainFlags& flags) {
  const std::filesystem::path out(flags.out);
  return !flags.from.empty() || (flags.resume && (is_directory(out) || out.extension() != ".safetensors"));
}

// How many tokens the model has that goes on.
std::int64_t tokens_of_model(const TrainFlags& flags) {
  const std::filesystem::path model = flags.from.empty() ? flags.out : flags.from, config = model / "config.json";
  if (!flags.from.empty() || !exists(config)) return open_pretrained(model).config.vocab_size;
  return parse_language_model_config(io::as_text(io::read_file(config, "train").bytes()), config.string()).vocab_size;
}

// Without --tokenizer that of the model, which may be bytes; without a model bytes.
std::unique_ptr<Tokenizer> tokenizer_of(const TrainFlags& flags) {
  if (!flags.tokenizer.empty()) return std::make_unique<BPETokenizer>(BPETokenizer::load(flags.tokenizer));
  if (!is_folder(flags)) return std::make_unique<ByteTokenizer>();
  return attn::tokenizer_of(flags.from.empty() ? flags.out : flags.from, tokens_of_model(flags), {}, "--tokenizer");
}

// Lists the files that go along with the model, from the place where it lies.
Companions companions_of(const TrainFlags& flags) {
  const std::filesystem::path from(flags.from);
  const bool alone = is_regular_file(from) && !io::is_gguf(from);
  const std::filesystem::path place = alone ? from.parent_path().empty() ? "." : from.parent_path() : from;
  Companions files = tokenizer_files(flags.tokenizer.empty() ? place : std::filesystem::path(flags.tokenizer));
  std::ranges::move(generation_files(place), std::back_inserter(files));
  return files;
}

void refuse_given(const Verb& verb, std::initializer_list<const char*> flags, const char* expected) {
  for (const char* flag : flags) {
    if (verb.given(flag)) refuse(flag, expected, flag);
  }
}

// The flags' sizes are those of a config that says all.
void take_sizes(const Verb& verb, const LanguageModelConfig& config, const Tokenizer& tokenizer, GPTConfig& sizes) {
  if (tokenizer.vocab_size() > config.vocab_size) {
    throw Error(Error::Kind::data, "--tokenizer", formatted("at most the {} tokens of the model", config.vocab_size),
                std::to_string(tokenizer.vocab_size()));
  }
  if (!verb.given("--context")) sizes.context_length = std::min(sizes.context_length, config.context_length);
  if (sizes.context_length < 1 || sizes.context_length > config.context_length) {
    refuse("--context", formatted("1 to {}, as the model takes", config.context_length),
           std::to_string(sizes.context_length));
  }
}

// --from brings its own sizes, and has learning rates of its own.
MakeModel go_on_from(const Verb& verb, TrainFlags& flags, const Tokenizer& tokenizer) {
  refuse_given(verb,
               {"--layers", "--heads", "--width", "--dropout", "--gelu", "--rng", "--family", "--kv-heads", "--config",
                "--mixer"},
               "neither sizes nor dropout beside --from, whose model has its own");
  take_sizes(verb, open_pretrained(flags.from).config, tokenizer, flags.settings.model);
  if (!verb.given("--lr")) flags.settings.train.lr = kRateOfReleased;
  return [from = flags.from, precision = flags.settings.model.precision](Generator& rng) {
    return finite(load_language_model(from, DType::f32, precision, rng), from);
  };
}

// Names flags in place of keys in an error about a config that was made of flags.
std::string in_flags(std::string text) {
  constexpr std::array<std::array<const char*, 2>, 5> names{{{"num_hidden_layers", "--layers"},
                                                             {"num_attention_heads", "--heads"},
                                                             {"num_key_value_heads", "--kv-heads"},
                                                             {"hidden_size", "--width"},
                                                             {"head_dim", "--width / --heads"}}};
  for (const auto& [key, flag] : names) {
    const std::size_t at = text.find(key);
    if (at != std::string::npos) text.replace(at, std::string_view(key).size(), flag);
  }
  return text;
}

// A new model, by a config.json or by a family and sizes.
MakeModel begin(const Verb& verb, TrainFlags& flags, const Tokenizer& tokenizer) {
  TrainSettings& settings = flags.settings;
  GPTConfig& sizes = settings.model;
  LanguageModelConfig config;
  if (!settings.config.empty()) {
    refuse_given(
        verb, {"--layers", "--heads", "--width", "--dropout", "--gelu", "--rng", "--family", "--kv-heads", "--mixer"},
        "neither sizes nor dropout beside --config, which has its own");
    const io::Buffer json = io::read_file(settings.config, "--config");
    config = parse_language_model_config(io::as_text(json.bytes()), settings.config);
    if (flags.tokenizer.empty() && config.vocab_size != tokenizer.vocab_size()) {  // nothing could read it again
      throw Error(Error::Kind::data, "--tokenizer",
                  formatted("the folder of a tokenizer, for the {} tokens of --config", config.vocab_size),
                  "none, where a model has the 256 bytes as its tokens",
                  "give one, or a vocab_size of 256 in " + settings.config);
    }
    take_sizes(verb, config, tokenizer, sizes);
    config.precision = sizes.precision;
  } else {
    const bool gpt2 = settings.family == "gpt2";
    if (verb.given("--kv-heads") && settings.kv_heads < 1) {
      refuse("--kv-heads", "at least 1 head", std::to_string(settings.kv_heads));
    }
    if (gpt2) refuse_given(verb, {"--kv-heads"}, "a --family whose heads share keys");
    if (!gpt2) refuse_given(verb, {"--dropout", "--gelu", "--rng", "--mixer"}, "--family gpt2, which alone has it");
    if (verb.given("--rng") && sizes.dropout == 0) refuse("--rng", "a --dropout above 0, which it draws", "0");
    sizes.vocab_size = tokenizer.vocab_size();
    if (settings.family == "olmo_hybrid" && sizes.layers == 1) {
      refuse("--layers", "at least 2 for olmo_hybrid, which has layers of two kinds", "1");
    }
    sizes.mixers = parse_mixers(settings.mixer, std::max<std::int64_t>(sizes.layers, 1));
    try {
      config = new_config(settings.family, sizes, settings.kv_heads);
    } catch (const Error& error) {
      throw Error(Error::Kind::argument, "train", "flags that make a model of --family " + settings.family,
                  in_flags(error.what()), "--layers, --heads, --kv-heads and --width say its sizes");
    }
  }
  return [config](Generator& rng) { return LanguageModel(config, rng); };
}

// Flags give nothing that a checkpoint says, except for what depends on the ranks.
std::unique_ptr<Training> resumed(const Verb& verb, const TrainFlags& flags, const TrainRanks& ranks,
                                  TrainingFiles& files, const Tokenizer& tokenizer) {
  auto given = given_settings(verb);
  for (const char* flag : {"--force", "--from"}) {
    if (verb.given(flag)) given.emplace_back(flag);
  }
  if (!given.empty()) {
    refuse(given.front(), "neither settings nor --force nor --from beside --resume, which has all from its checkpoint",
           joined(given, " "));
  }
  const TrainCheckpoint from = TrainCheckpoint::load(files.checkpoint());
  try {
    auto training = std::make_unique<Training>(from, flags.text, tokenizer, ranks);
    files.resumed(*training);
    return training;
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::argument || ranks.size() > 1) throw;
    throw Error(Error::Kind::data, "train", "the settings of a training run in " + from.source, error.what());
  }
}

std::unique_ptr<Training> started(const Verb& verb, TrainFlags& flags, const TrainRanks& ranks, TrainingFiles& files,
                                  const Tokenizer& tokenizer) {
  flags.settings.model.vocab_size = tokenizer.vocab_size();
  flags.settings.model.precision = parse_precision(flags.precision);
  flags.settings.model.gelu = flags.gelu == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  const MakeModel make = flags.from.empty() ? begin(verb, flags, tokenizer) : go_on_from(verb, flags, tokenizer);
  TrainConfig& train = flags.settings.train;
  if (!verb.given("--min-lr")) train.min_lr = train.lr / 10;
  if (!verb.given("--warmup")) train.warmup = std::min(train.warmup, train.steps / 10);
  if (!flags.from.empty()) files.set_companions(companions_of(flags));
  return std::make_unique<Training>(flags.settings, flags.text, tokenizer, make, ranks);
}

void introduce(Training& training, const Tokenizer& tokenizer) {
  const Trainer& run = training.trainer;
  std::int64_t weights = 0;
  for (const Parameter* p : training.model.parameters()) weights += p->value.numel();
  const std::string from = run.steps_done() == 0 ? "" : formatted("; from step {}", run.steps_done());
  const std::string ranks = run.ranks().size() == 1 ? "" : "; " + in_words(run.ranks());
  const std::string told = formatted("{:.2f} million weights; {} tokens to train on, {} to validate by{}{}\n",
                                     static_cast<double>(weights) / 1e6, training.text.training_tokens(),
                                     training.text.validation_tokens(), from, ranks);
  write_stderr(fitted(told + training.lacking(tokenizer), STDERR_FILENO));
}

std::unique_ptr<Training> training_of(const Verb& verb, TrainFlags& flags, const TrainRanks& ranks,
                                      TrainingFiles& files, std::unique_ptr<Tokenizer>& tokenizer) {
  if (!flags.from.empty() && !flags.resume) require_model("--from", flags.from);
  const auto streams = std::ranges::count(flags.text, "-");
  if (streams > 1 || (streams == 1 && ranks.size() > 1)) {
    refuse("--text", ranks.size() > 1 ? "files, which all ranks read" : "standard input (-) once", "standard input");
  }
  // --from is not among them: with --force a model may be trained on in its place.
  TrainingFiles::Inputs inputs{{"--config", flags.settings.config}};
  for (const std::string& text : flags.text) inputs.emplace_back("--text", text);
  if (ranks.first()) files.reserve(flags.resume, flags.force, inputs);
  tokenizer = tokenizer_of(flags);
  return flags.resume ? resumed(verb, flags, ranks, files, *tokenizer) : started(verb, flags, ranks, files, *tokenizer);
}

// Throws unless ranks hold the same.
void require_equal_ranks(const Training& training) {
  const TrainRanks& ranks = training.trainer.ranks();
  if (ranks.size() == 1) return;
  require_alike(ranks.transport, "the tokens of --text", training.text.fingerprint());
  require_alike(ranks.transport, "the step", std::to_string(training.trainer.steps_done()));
  require_alike(ranks.transport, "the instruction set (ATTN_FORCE_ISA chooses one)", kernels::active().isa);
  require_alike(ranks.transport, "the model, its settings and its state", training.fingerprint);
}

// Why a run ends before its last step. Ranks agree, so that all end with the same one.
struct Stop {
  bool now = false;
  int signal = 0;

  static Stop agreed(const TrainRanks& ranks, bool mine) {
    Stop stop{mine || stopped_by() != 0, stopped_by()};
    if (ranks.size() == 1) return stop;
    const std::vector own{static_cast<double>(stop.now), static_cast<double>(stop.signal)};
    const std::vector<double> all = distributed::all_gather(ranks.transport, own);
    for (std::size_t i = 0; i < all.size(); i += 2) {
      stop.now = stop.now || all[i] != 0, stop.signal = std::max(stop.signal, static_cast<int>(all[i + 1]));
    }
    return stop;
  }
};

// All ranks find the same numbers, and what they say of them is said by one.
void check(Divergence& divergence, const Trainer::Step& step, const TrainingFiles& files, const TrainFlags& flags,
           distributed::Transport* ranks) {
  const auto found = divergence.ends(step);
  if (!found) return;
  const bool may_skip = !step.finite() && flags.on_nan == "stop";
  together(ranks, [&] { throw files.diverged(*found, may_skip ? ", or leave such steps out by --on-nan skip" : ""); });
}

// Throws Error (argument) where no step is such a one.
void require_keep_every(std::int64_t every, const Trainer& run) {
  const std::int64_t last = run.config().steps;
  if (every <= last) return;
  refuse("--keep-every", formatted("a number of steps up to {}, the last one", last), std::to_string(every),
         "no model would be kept");
}

// Throws Error (argument) for a step at which this run cannot end.
void require_until(std::int64_t until, const Trainer& run) {
  const std::int64_t done = run.steps_done(), last = run.config().steps;
  if (until > last) refuse("--until", formatted("a step up to {}, the last one", last), std::to_string(until));
  if (until == 0 || until >= done) return;
  refuse("--until", formatted("a step from {} on, which the checkpoint has reached", done), std::to_string(until));
}

Progress::Form form_of(const TrainFlags& flags) {
  if (flags.json) return Progress::Form::json;
  return isatty(STDERR_FILENO) ? Progress::Form::bar : Progress::Form::lines;
}

void train(const Verb& verb, TrainFlags& flags, int& status) {
  TrainRanks ranks{launched_ranks()};
  const Sharding sharding = !flags.shard ? Sharding::none : flags.keep_weights ? Sharding::state : Sharding::weights;
  together(ranks.transport, [&] { ranks = train_ranks(ranks.transport, flags.ranks, flags.scheme, sharding); });
  keep_freed_memory();
  std::unique_ptr<TrainingFiles> place;
  std::unique_ptr<Training> training;
  std::unique_ptr<Tokenizer> tokenizer;
  together(ranks.transport, [&] {  // one rank's mistake ends all
    place = std::make_unique<TrainingFiles>(flags.out, is_folder(flags), flags.curve);
    training = training_of(verb, flags, ranks, *place, tokenizer);
  });
  require_equal_ranks(*training);
  TrainingFiles& files = *place;
  Trainer& run = training->trainer;
  together(ranks.transport, [&] {
    require_until(flags.until, run);
    require_keep_every(flags.keep_every, run);
  });
  if (ranks.first()) introduce(*training, *tokenizer);

  catch_signals();
  const std::int64_t last = flags.until > 0 ? std::min(flags.until, run.config().steps) : run.config().steps;
  if (const std::int64_t left = last - run.steps_done(); left >= kWorthATrial) {
    const std::string told = estimate_text(*training, left, flags.minutes, !flags.resume && flags.from.empty());
    if (ranks.first()) write_stderr(fitted(told, STDERR_FILENO));
  }
  Progress progress(form_of(flags), run, last, flags.log_every, flags.minutes);
  Divergence divergence(flags.on_nan == "skip" ? Divergence::Then::skip : Divergence::Then::stop);
  std::exception_ptr unread;  // nobody reads --json any more
  Stop stop;
  const auto enough = [&] {
    stop = Stop::agreed(ranks, unread || (flags.minutes > 0 && progress.seconds() >= 60 * flags.minutes));
    return stop.now || run.done() || (flags.until > 0 && run.steps_done() >= flags.until);
  };
  while (!enough()) {
    const Trainer::Step step = run.step();
    check(divergence, step, files, flags, ranks.transport);
    if (step.validation) files.measured(*training);
    try {
      if (ranks.first()) progress.show(step);
    } catch (const io::ClosedPipe&) {
      unread = std::current_exception();
    }
    const bool keep = flags.keep_every > 0 && run.steps_done() % flags.keep_every == 0;
    if (step.finite() && (keep || run.steps_done() % flags.save_every == 0)) files.save(*training, keep);
  }
  progress.finish();
  if (!files.hold(run)) files.save(*training);
  const bool writes = ranks.size() == 1 && stop.signal == 0 && run.steps_done() > 0;
  if (ranks.first()) conclude(*training, progress, files, flags.json, writes ? sample_of(*training, *tokenizer) : "");
  together(ranks.transport, [&] {
    if (unread) std::rethrow_exception(unread);
  });
  if (stop.signal != 0) status = 128 + stop.signal;
}

void add_ranks_flags(Verb& verb, TrainFlags& flags) {
  verb.add_option(
          "--ranks SHARES", flags.ranks,
          "How the ranks of mpirun share the work, as in data=4,sequence=2: data shares of each batch, sequence "
          "shares of each text. The product is the number of ranks, and what is not named is 1.")
      .default_is("data alone");
  verb.add_option("--scheme NAME", flags.scheme,
                  "How attention goes over ranks that share a text: auto, ring, gather or ulysses.")
      .one_of({"auto", "ring", "gather", "ulysses"});
  Option& shard = verb.add_flag("--shard", flags.shard,
                                "Under mpirun: each rank keeps its part of the weights and of the optimizer's state "
                                "alone, and fetches a block's weights before it computes the block. This takes the "
                                "least memory, and a step sends half as much again as without, with "
                                "--reproducible more.");
  verb.add_flag("--keep-weights", flags.keep_weights,
                "With --shard: every rank keeps all weights, and the optimizer's state alone is divided. A step sends "
                "as much as without --shard.")
      .needs(shard);
}

}  // namespace

void define_train(Verb& verb, int& status) {
  const auto flags = std::make_shared<TrainFlags>();
  verb.add_option("--text FILE…", flags->text, "The files of text to train on; - is standard input.").required();
  verb.add_option("--from MODEL", flags->from,
                  "A model to go on from, as attn generate takes it, in place of a new one.")
      .default_is("a new model");
  verb.add_option("--out FILE", flags->out, "The model to write: a .safetensors file, or with --from a folder.")
      .required();
  verb.add_flag("--resume", flags->resume, "Continue from the checkpoint beside --out.");
  verb.add_flag("--force", flags->force,
                "Replace the model that --out names and its curve, where --resume is not given.");
  verb.add_option("--on-nan WHAT", flags->on_nan,
                  "What to do at a loss or gradient that is not finite: stop, or skip that step.")
      .one_of({"stop", "skip"});
  verb.add_option("--tokenizer FOLDER", flags->tokenizer,
                  "A folder with a tokenizer.json, or with GPT-2's vocab.json and merges.txt.")
      .default_is("bytes are the tokens; with --from the model's own");
  verb.add_option("--minutes N", flags->minutes, "Save and stop after so many minutes.")
      .default_is("when all --steps are done")
      .positive();
  verb.add_option("--until N", flags->until, "Save and stop after this step, as if the run were interrupted there.")
      .default_is("the last step")
      .positive();
  verb.add_option("--save-every N", flags->save_every, "The number of steps between checkpoints.").positive();
  verb.add_option("--keep-every N", flags->keep_every,
                  "Keep the model of every Nth step as NAME.step-N.safetensors, for attn experiment --checkpoints.")
      .default_is("the last and the best alone")
      .positive();
  verb.add_option("--log-every N", flags->log_every, "The number of steps between lines of progress.").positive();
  verb.add_option("--curve FILE", flags->curve, "The loss curve to write, .svg.")
      .default_is("beside --out, with its name");
  add_ranks_flags(verb, *flags);
  verb.add_flag("--json", flags->json, "Print progress as JSON, an object a line, on standard output.");
  add_train_settings(verb, flags->settings, flags->precision, flags->gelu);
  verb.find("--rng")->needs(*verb.find("--dropout"));
  verb.notes(kTrainNotes);
  verb.examples(kTrainExamples);
  verb.callback([&verb, flags, &status] { train(verb, *flags, status); });
}

}  // namespace attn::tool
