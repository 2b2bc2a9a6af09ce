// attn report: one HTML page that shows every step.
#include "attn/report.hpp"

#include <unistd.h>

#include <charconv>
#include <memory>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/choice.hpp"
#include "common/command_line.hpp"
#include "common/format.hpp"
#include "common/outputs.hpp"
#include "common/pictures.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct Flags {
  PictureFlags pictures;
  std::int64_t layer = 1, head = 1;  // counted from 1
  std::string output = "attn-report.html", title;
};

constexpr const char* kReportNotes =
    "The page needs no network and no other file. Up to 128 tokens every number is exact; beyond, the page says what "
    "it has simplified. With --model it begins with a map of all heads, which are named by where they look while the "
    "model reads the first 64 tokens of the text twice over.";

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

// Of a module that has just run: what the page needs to compute anew.
void describe(const Job& job, const InputFlags& input, ReportOptions& options) {
  options.config = config_of(job.flags, job.x.tensor.size(-1));
  if (const auto* module = dynamic_cast<const AttentionLayer*>(job.module.get())) options.config = module->config();
  options.parameters = job.module->state_dict();
  options.training = job.module->training();
  options.flavour = dropout_flavour(job.flags.rng);
  if (job.seeded) options.seed = job.flags.seed;
  options.random_weights = has_weights(job.flags.module) && input.weights.empty();
}

// What attn run has written beside its steps.
void describe(const std::map<std::string, std::string>& metadata, ReportOptions& options) {
  const auto told = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  if (!told("command").empty()) options.command = told("command");
  std::uint64_t seed = 0;
  const std::string digits = told("seed");
  if (std::from_chars(digits.data(), digits.data() + digits.size(), seed).ec == std::errc()) options.seed = seed;
  if (told("rng") == "mkl" || told("rng") == "native") options.flavour = dropout_flavour(told("rng"));
}

ReportOptions options_for(const Pictures& pictures, const Flags& flags) {
  ReportOptions options;
  options.tokens = pictures.tokens;
  options.key_tokens = pictures.key_tokens;
  options.title = flags.title.empty() ? flags.pictures.text : flags.title;
  options.module = pictures.module;
  options.command = command_line();
  options.item = flags.pictures.item - 1;
  options.layer = flags.layer - 1;
  options.head = flags.head - 1;
  options.notes = pictures.notes;
  options.repeated = pictures.repeated;
  options.repeated_ids = pictures.repeated_ids;
  pictures.job ? describe(*pictures.job, flags.pictures.input, options) : describe(pictures.metadata, options);
  return options;
}

void write_report(const Verb& verb, const Flags& flags) {
  Outputs outputs;
  outputs.declare("--output", flags.output, {".html", ".htm"});
  const Pictures pictures = load_pictures(verb, flags.pictures);
  require_head(arranged(pictures, flags.pictures.item), flags.layer, flags.head);
  const std::string page = report(pictures.steps, options_for(pictures, flags));
  outputs.save({{"--output", [&](io::OutputFile& to) { to.write(page); }}});
  for (const std::string& note : pictures.notes) write_stderr("attn: " + note + "\n");
  if (!outputs.to_stdout()) {
    const std::string size = size_text(page.size());
    write_stdout(
        fitted(formatted("wrote {} ({}): open it in a browser\n", escaped(flags.output), size), STDOUT_FILENO));
  }
}

}  // namespace

void define_report(Verb& verb, int&) {
  const auto flags = std::make_shared<Flags>();
  flags->pictures.names_heads = true;
  add_picture_flags(verb, flags->pictures);
  verb.add_option("--layer", flags->layer, "The layer to show first, counted from 1.").value_name("N");
  verb.add_option("--head", flags->head, "The head to show first, counted from 1.").value_name("N");
  verb.add_option("--title", flags->title, "The title of the page.").value_name("TEXT").default_is("the tokens");
  verb.add_option("--output", flags->output, "The page to write; - is standard output.").value_name("FILE");
  verb.notes(kReportNotes);
  verb.examples(kReportExamples);
  verb.callback([&verb, flags] { write_report(verb, *flags); });
}

}  // namespace attn::tool
