// attn report: one HTML page that shows every step.
#include "attn/report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/outputs.hpp"
#include "common/terminal.hpp"
#include "report/source.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct Flags {
  SourceFlags source;
  std::string output = "attn-report.html", title;
  std::int64_t item = 1;
};

constexpr const char* kFooter =
    "The page needs no network and no other file. It shows the steps of a MODULE (on\n"
    "the six words, or on --input), of a trained model on --text, of a file that\n"
    "attn run --save-steps wrote, or bare attention weights.\n"
    "Up to 128 tokens every number is exact; beyond, the page says what it has\n"
    "simplified.\n"
    "\n"
    "Examples:\n"
    "  attn report multihead --d-out 4 --output six-words.html\n"
    "  printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' > x.csv\n"
    "  attn report causal --input x.csv --d-out 2 --dropout 0.5 --train\n"
    "  attn run multihead --input x.csv --d-out 4 --output z.npy --save-steps s.safetensors\n"
    "  attn report --steps s.safetensors\n"
    "  attn report --model model.safetensors --text 'Your journey starts'\n"
    "  printf '1,0\\n0.5,0.5\\n' > w.csv\n"
    "  printf 'hello\\nworld\\n' > words.txt\n"
    "  attn report --attention w.csv --tokens words.txt";

std::string size_text(std::size_t bytes) {
  constexpr double kilo = 1000;
  const auto size = static_cast<double>(bytes);
  return size < kilo * kilo ? fmt::format("{:.0f} kB", size / kilo) : fmt::format("{:.1f} MB", size / kilo / kilo);
}

void write_report(const CLI::App& verb, const Flags& flags) {
  Outputs outputs;
  outputs.declare("--output", flags.output, {".html", ".htm"});
  ReportSource source = load_source(verb, flags.source);
  source.options.item = flags.item - 1;
  if (!flags.title.empty()) source.options.title = flags.title;
  const std::string page = report(source.steps, source.options);
  outputs.save({{"--output", [&](const std::filesystem::path& to) { io::save_text(to, page); }}});
  for (const std::string& note : source.options.notes) write_stderr("attn: " + note + "\n");
  if (!outputs.to_stdout()) {
    write_stdout(fmt::format("wrote {} ({}): open it in a browser\n", printable(flags.output), size_text(page.size())));
  }
}

}  // namespace

void add_report(CLI::App& app, int&) {
  auto* verb = app.add_subcommand("report", "Write one HTML page that shows every step, to look at offline");
  const auto flags = std::make_shared<Flags>();
  add_source_flags(*verb, flags->source);
  verb->add_option("--item", flags->item, "Which text of a batch is shown, counted from 1. Default: 1")
      ->option_text("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--title", flags->title, "The page's title. Default: the tokens")->option_text("TEXT");
  verb->add_option("--output", flags->output, "The page; - is standard output.\nDefault: attn-report.html")
      ->option_text("FILE");
  verb->footer(kFooter);
  verb->callback([verb, flags] { write_report(*verb, *flags); });
}

}  // namespace attn::tool
