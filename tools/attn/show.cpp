// attn show: attention weights, or any step, in the terminal.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/figure.hpp"
#include "common/choice.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/outputs.hpp"
#include "common/pictures.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "report/figure/draw.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr const char* kShowNotes =
    "Colours are used on a terminal. With NO_COLOR=1, or into a pipe, characters take their place.";

constexpr const char* kShowExamples =
    "attn show causal\n"
    "attn show multihead --head 2 --numbers\n"
    "attn show simple --step scores --color 256\n"
    "printf '1,0,0\\n.5,.5,0\\n.2,.3,.5\\n' > w.csv\n"
    "printf 'Your\\njourney\\nstarts\\n' > words.txt\n"
    "attn show w.csv --tokens words.txt --log --ascii\n"
    "attn show w.csv --json";

struct ShowFlags {
  PictureFlags pictures;
  ChoiceFlags choice;
  std::string color = "auto";
  std::size_t width = 0;  // 0: the terminal's
  bool numbers = false, ascii = false, json = false;
};

// Returns the line above the picture: "causal: weights (1, 6, 6), head 1 of 1". It breaks behind a colon or a comma
// where it is wider than `columns`, and between words where one of its parts is.
std::string heading(const Pictures& pictures, const report_page::Blocks& blocks, const report_page::Block& block,
                    const ShowFlags& flags, const Tensor& step, std::size_t columns) {
  std::vector<std::string> parts;
  if (!pictures.module.empty()) parts.push_back(escaped(pictures.module) + ":");
  parts.push_back(flags.choice.step + " " + block.find(flags.choice.step)->shape().str());
  const auto add = [&](const char* what, std::int64_t index, std::int64_t count) {
    if (count <= 1) return;
    parts.back().append(",");
    parts.push_back(formatted("{} {} of {}", what, index, count));
  };
  add("layer", flags.choice.layer, static_cast<std::int64_t>(blocks.blocks.size()));
  add("head", flags.choice.head.value_or(1), step.size(0));
  add("text", flags.pictures.item, blocks.batch);
  std::vector<std::string> words;
  for (const std::string& part : parts) {
    if (width_of(part) <= columns)
      words.push_back(part);
    else
      std::ranges::move(split(part, ' '), std::back_inserter(words));
  }
  return wrapped(words, columns);
}

Json report(const Pictures& pictures, const report_page::Blocks& blocks, const ShowFlags& flags, const Tensor& step,
            const figure::Options& options) {
  Json json;
  if (!pictures.module.empty()) json["module"] = pictures.module;
  json["step"] = flags.choice.step;
  json["layers"] = blocks.blocks.size();
  json["layer"] = flags.choice.layer;
  json["heads"] = step.size(0);
  json["shape"] = json_shape(step.shape());
  if (!pictures.tokens.empty()) json["tokens"] = pictures.tokens;
  if (!pictures.key_tokens.empty()) json["key_tokens"] = pictures.key_tokens;
  if (options.keep.defined()) json["keep"] = json_values(options.keep);
  json["values"] = json_values(flags.choice.head ? chosen_head(step, flags.choice) : step);
  if (flags.choice.head) json["head"] = *flags.choice.head;
  json["notes"] = pictures.notes;
  return json;
}

void show(const Verb& verb, const ShowFlags& flags) {
  const Pictures pictures = load_pictures(verb, flags.pictures);
  const report_page::Blocks blocks = arranged(pictures, flags.pictures.item);
  const report_page::Block& block = chosen_layer(blocks, flags.choice);
  const Tensor step = chosen_step(block, flags.choice);
  const Tensor matrix = chosen_head(step, flags.choice);
  const figure::Options options = figure::options_of(block, choice_of(pictures, flags.choice));
  if (flags.json) return write_stdout(dump(report(pictures, blocks, flags, step, options)));

  const Style style = Style::of_stdout(flags.color);
  const std::size_t columns = flags.width == 0 ? terminal_width(STDOUT_FILENO) : flags.width;
  std::string text = style.strong(heading(pictures, blocks, block, flags, step, columns)) + "\n";
  if (flags.numbers) {
    text.append(labelled(matrix, options.tokens)).append("\n");
  } else {
    using figure::Characters;
    text.append(figure::terminal_heatmap(matrix, options,
                                         {.columns = columns,
                                          .depth = style.depth(),
                                          .characters = flags.ascii ? Characters::ascii : Characters::unicode}));
  }
  write_stdout(text);
  tell_beside(pictures.notes);
}

}  // namespace

void define_show(Verb& verb, int&) {
  const auto flags = std::make_shared<ShowFlags>();
  add_picture_flags(verb, flags->pictures);
  add_choice_flags(verb, flags->choice);
  Option& numbers = verb.add_flag("--numbers", flags->numbers, "Print the numbers as PyTorch does.");
  verb.add_option("--color WHEN", flags->color, "When to use colours, and how many: auto, never, always, 256 or 24bit.")
      .one_of({"auto", "never", "always", "256", "24bit"});
  verb.add_option("--width N", flags->width, "The width of the picture in columns, from 20 on.")
      .default_is("the terminal's width, or 80")
      .between(20, 10000);
  verb.add_flag("--ascii", flags->ascii, "Use ASCII characters alone in the picture.");
  const Option& json =
      verb.add_flag("--json", flags->json, "Print all values as one JSON object; with --head, those of that head.");
  numbers.not_beside(json);
  for (const char* of_picture : {"--colour-scale", "--log", "--colours", "--width", "--ascii"}) {
    verb.find(of_picture)->not_beside(numbers).not_beside(json);
  }
  verb.find("--color")->not_beside(json);
  verb.notes(kShowNotes);
  verb.examples(kShowExamples);
  verb.callback([&verb, flags] { show(verb, *flags); });
}

}  // namespace attn::tool
