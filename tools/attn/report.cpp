// attn report: one HTML page that shows every step.
#include "attn/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "attn/io.hpp"
#include "common/choice.hpp"
#include "common/command_line.hpp"
#include "common/format.hpp"
#include "common/live_model.hpp"
#include "common/outputs.hpp"
#include "common/pictures.hpp"
#include "common/status_line.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct Flags {
  PictureFlags pictures;
  std::int64_t layer = 1, head = 1;  // counted from 1
  std::string output = "attn-report.html", title, layers;
  bool live = false, checkpoints = false;
};

constexpr const char* kReportNotes =
    "The page needs no network and no other file. Up to 128 tokens every number is exact, of several layers up to 9 "
    "MB; beyond, the page says what it has simplified. With --model it begins with a map of all heads, which are named "
    "by where they look while the model reads the first 64 tokens of the text twice over. A model may also be an "
    "encoder, whose heads have no such names. Beside --model, --tokens N has the model read the first N tokens of its "
    "text alone, and --tokens A-B those from A to B.";

constexpr const char* kReportExamples =
    "attn report multihead --d-out 4 --output six-words.html\n"
    "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' > x.csv\n"
    "attn report causal --input x.csv --d-out 2 --dropout 0.5 --train\n"
    "attn run multihead --input x.csv --d-out 4 --save-steps s.safetensors\n"
    "attn report s.safetensors\n"
    "printf '1,0\\n0.5,0.5\\n' > w.csv\n"
    "printf 'hello\\nworld\\n' > words.txt\n"
    "attn report w.csv --tokens words.txt\n"
    "attn demo > a.txt\n"
    "attn train --text a.txt --out m.safetensors --layers 2 --context 8 --steps 9\n"
    "attn report --model m.safetensors --text 'Once'";

// Complains as the user counts: from 1.
void require_head(const report_page::Blocks& blocks, std::int64_t layer, std::int64_t head) {
  require_index("--layer", layer, static_cast<std::int64_t>(blocks.blocks.size()));
  const std::int64_t heads = blocks.blocks[static_cast<std::size_t>(layer - 1)].weights().size(0);
  require_index("--head", head, std::max<std::int64_t>(heads, 1));
}

std::string size_text(std::size_t bytes) {
  constexpr double kilo = 1000;
  const auto size = static_cast<double>(bytes);
  return size < kilo * kilo ? formatted("{:.0f} kB", size / kilo) : formatted("{:.1f} MB", size / kilo / kilo);
}

// Tells the page about a module that has just run; a live page computes by it.
void describe(const Job& job, const InputFlags& input, ReportOptions& options) {
  options.config = config_of(job.flags, job.x.tensor.size(-1));
  if (const auto* module = dynamic_cast<const AttentionLayer*>(job.module.get())) options.config = module->config();
  options.parameters = job.module->state_dict();
  options.training = job.module->training();
  options.flavour = dropout_flavour(job.flags.rng);
  if (job.seeded) options.seed = job.flags.seed;
  options.random_weights = has_weights(job.flags.module) && input.weights.empty();
}

// Tells the page what attn run has written beside its steps.
void describe(const std::map<std::string, std::string>& metadata, ReportOptions& options) {
  const auto told = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  if (!told("command").empty()) options.command = told("command");
  options.seed = number_in<std::uint64_t>(told("seed"));
  if (told("rng") == "mkl" || told("rng") == "native") options.flavour = dropout_flavour(told("rng"));
}

ReportOptions options_for(const Verb& verb, const Pictures& pictures, const Flags& flags) {
  ReportOptions options;
  options.tokens = pictures.tokens;
  options.key_tokens = pictures.key_tokens;
  options.title = flags.title.empty() ? flags.pictures.input.text : flags.title;
  options.module = pictures.module;
  options.command = command_line();
  options.item = flags.pictures.item - 1;
  if (verb.given("--layer")) options.layer = flags.layer - 1;
  if (verb.given("--head")) options.head = flags.head - 1;
  options.notes = pictures.notes;
  pictures.job ? describe(*pictures.job, flags.pictures.input, options) : describe(pictures.metadata, options);
  return options;
}

constexpr std::int64_t kMostRepeated = 64;

// The text's beginning twice, as far as the context reaches: what names the heads of a model that looks back.
std::vector<std::int64_t> read_twice(const TextModel& model, const std::vector<std::int64_t>& ids) {
  const std::int64_t count = std::min({kMostRepeated, model.context_length() / 2, std::int64_t{std::ssize(ids)}});
  if (!model.writes() || count < 2) return {};
  return {ids.begin(), ids.begin() + count};
}

// "1-4,9": layers counted from 1; all where the text is empty.
std::set<std::size_t> chosen_layers(const std::string& text, std::int64_t count) {
  std::set<std::size_t> chosen;
  if (text.empty()) return chosen;
  for (const std::string& part : split(text, ',')) {
    const std::vector<std::string> ends = split(part, '-');
    const auto first = number_in<std::int64_t>(ends.front()), last = number_in<std::int64_t>(ends.back());
    if (!first || !last || ends.size() > 2 || *first < 1 || *last < *first || *last > count) {
      refuse("--layers", formatted("numbers and ranges from 1 to {}, as 1-4,9", count), text);
    }
    for (std::int64_t i = *first; i <= *last; ++i) chosen.insert(static_cast<std::size_t>(i - 1));
  }
  return chosen;
}

// A line on a terminal that tells how far the work is.
class LayerProgress {
 public:
  explicit LayerProgress(std::size_t layers) : layers_(layers), shown_(isatty(STDERR_FILENO) != 0) {}
  ~LayerProgress() { line_.clear(); }
  LayerProgress(const LayerProgress&) = delete;
  LayerProgress& operator=(const LayerProgress&) = delete;

  void reads(std::string_view what, std::size_t layer) {
    if (shown_) line_.show(formatted("{}: layer {} of {}", what, layer, layers_));
  }

 private:
  StatusLine line_;
  std::size_t layers_;
  bool shown_;
};

// A page that computes shows every layer.
LiveModel live_to_hold(const Flags& flags, bool whole) {
  const auto wrong = [](const char* expected, const char* found) { refuse("--live", expected, found); };
  if (!whole) wrong("a page of all layers", "--layers");
  if (!flags.title.empty()) wrong("the text as the title", "--title");
  LiveModel held = live_model(flags.pictures.model, flags.pictures.tokenizer, "--live");
  if (flags.checkpoints) add_kept(flags.pictures.model, held, "--checkpoints");
  return held;
}

// A page hands texts to the library with a zero at their end.
void require_no_nul(const std::string& text, std::string_view nul) {
  if (text.find(nul) != std::string::npos)
    refuse("--text", "a text without the character U+0000 beside --live", "one with it");
}

// A layer's steps are in memory until the page has what it holds of them.
std::string model_page(const Verb& verb, const Flags& flags) {
  const ReadText text = open_text(verb, flags.pictures);
  require_index("--item", flags.pictures.item, 1);  // a model reads one text
  const auto [layers, heads] = text.model->size();
  const std::set<std::size_t> chosen = chosen_layers(flags.layers, layers);
  const auto longest = std::max<std::int64_t>(std::ssize(text.ids), 2 * kMostRepeated);
  require_scores_memory(1, heads, longest, longest, 4 * kStepBytes);
  Pictures pictures;
  pictures.tokens = pictures.key_tokens = text.tokens;
  if (!flags.pictures.key_tokens.empty()) {
    pictures.key_tokens = load_tokens(flags.pictures.key_tokens, std::ssize(text.ids), "--key-tokens", "key");
  }
  ReportOptions options = options_for(verb, pictures, flags);
  if (flags.title.empty()) options.title = text.text;
  options.unit = text.unit;
  if (text.model->is_recurrent()) {
    options.notes.emplace_back(
        "Some layers keep a state in place of keys and values (docs/beyond-softmax.md). Their effective weights may be "
        "negative; a map in 8 bits shows their size, and heads' names and scores are those of these weights.");
  }
  options.repeated_ids = read_twice(*text.model, text.ids);
  if (flags.live) options.live = live_to_hold(flags, chosen.empty());
  if (flags.live) {
    require_no_nul(text.text, std::string_view("\0", 1));
    options.title = text.text;
    options.live->ids = text.ids;
  }
  if (flags.live && options.live->in_bytes) options.notes.emplace_back(kInBytes);
  const std::int64_t count = chosen.empty() ? layers : std::ssize(chosen);
  require_index("--layer", flags.layer, layers);
  const auto start = static_cast<std::size_t>(flags.layer - 1);
  if (verb.given("--layer") && !chosen.empty() && !chosen.contains(start)) {
    refuse("--layer", "one of --layers " + flags.layers, std::to_string(flags.layer));
  }
  if (options.layer && !chosen.empty()) options.layer = std::distance(chosen.begin(), chosen.find(start));
  require_index("--head", flags.head, verb.given("--layer") ? text.model->config().heads_of(flags.layer - 1) : heads);
  ReportWriter writer(options, count);
  LayerProgress progress(static_cast<std::size_t>(layers));
  if (!options.repeated_ids.empty()) {
    std::vector<std::int64_t> twice = options.repeated_ids;
    twice.insert(twice.end(), options.repeated_ids.begin(), options.repeated_ids.end());
    text.model->read(twice, chosen, [&](std::size_t layer, const Trace& steps) {
      writer.add_repeated(steps);
      progress.reads("naming heads", layer + 1);
    });
  }
  text.model->read(text.ids, chosen, [&](std::size_t layer, const Trace& steps) {
    progress.reads("reading", layer + 1);
    writer.add(steps, static_cast<std::int64_t>(layer) + 1);
  });
  return writer.page();
}

// A page that computes begins where this run began: with one text, and a stream of random numbers that drew the weights
// first.
void require_computable(const Pictures& pictures, const std::string& title) {
  const auto wrong = [](const char* expected, const char* found) {
    refuse("--live", expected, found, "leave --live out");
  };
  if (!pictures.job) wrong("a module or --model FILE", "steps that were saved");
  if (!title.empty()) wrong("the text as the title", "--title");
  for (const std::string& word : pictures.tokens) require_no_nul(word, "\\u0000");  // as it is escaped in them
  const Job& job = *pictures.job;
  if (job.x.tensor.rank() == 3 && job.x.tensor.size(0) > 1) wrong("one text", "a batch");
  if (job.flags.train && job.flags.dropout > 0 && has_weights(job.flags.module) && !job.seeded) {
    wrong("an input that is not drawn beside --train and --dropout", "one that is");
  }
}

std::string picture_page(const Verb& verb, const Flags& flags, std::vector<std::string>& notes) {
  if (verb.given("--layers")) refuse("--layers", "--model FILE beside it", "none");
  const Pictures pictures = load_pictures(verb, flags.pictures);
  require_head(arranged(pictures, flags.pictures.item), flags.layer, flags.head);
  notes = pictures.notes;
  ReportOptions options = options_for(verb, pictures, flags);
  if (flags.live) require_computable(pictures, flags.title);
  if (flags.live) options.live = LiveModel{};
  return report(pictures.steps, options);
}

void write_report(const Verb& verb, const Flags& flags) {
  if (verb.given("--title") && flags.title.empty()) refuse("--title", "a title", "an empty text");
  Outputs outputs;
  outputs.declare("--output", flags.output, {".html", ".htm"});
  std::vector<std::string> notes;
  if (flags.checkpoints && !(flags.live && verb.given("--model")))
    refuse("--checkpoints", "--live and --model FILE beside it", flags.live ? "no model" : "no --live");
  const std::string page = verb.given("--model") ? model_page(verb, flags) : picture_page(verb, flags, notes);
  outputs.save({{"--output", [&](io::OutputFile& to) { to.write(page); }}}, [&] {
    if (outputs.to_stdout()) return;
    const std::string size = size_text(page.size());
    write_stdout(
        fitted(formatted("wrote {} ({}): open it in a browser\n", escaped(flags.output), size), STDOUT_FILENO));
  });
  tell_beside(notes);
}

}  // namespace

void define_report(Verb& verb, int&) {
  const auto flags = std::make_shared<Flags>();
  add_picture_flags(verb, flags->pictures);
  verb.add_option("--layer N", flags->layer, "The layer to show first, counted from 1.").default_is("that of the head");
  verb.add_option("--head N", flags->head, "The head to show first, counted from 1.")
      .default_is("the strongest that has a name, or 1");
  verb.add_option("--layers LIST", flags->layers,
                  "The layers of a model that the page has: numbers and ranges, as 1-4,9.")
      .default_is("all");
  verb.add_flag("--live", flags->live,
                "The page holds the module or model and computes: it reads what is typed, and later steps follow "
                "each number that is changed.");
  verb.add_flag("--checkpoints", flags->checkpoints,
                "Beside --live --model: a slider puts the weights that attn train --keep-every has kept in the place "
                "of the model's.");
  verb.add_option("--title TEXT", flags->title, "The title of the page.").default_is("the tokens");
  verb.add_option("--output FILE", flags->output, "The page to write; - is standard output.");
  verb.notes(kReportNotes);
  verb.examples(kReportExamples);
  verb.callback([&verb, flags] { write_report(verb, *flags); });
}

}  // namespace attn::tool
