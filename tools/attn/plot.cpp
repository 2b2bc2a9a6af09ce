// attn plot: figures for papers.
#include <unistd.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/io.hpp"
#include "common/choice.hpp"
#include "common/figure_file.hpp"
#include "common/format.hpp"
#include "common/pictures.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

constexpr const char* kPlotExamples =
    "attn plot causal --output causal.svg\n"
    "attn plot multihead --figure lines --output lines.svg\n"
    "attn plot --text 'The cat sat.' --figure lines --query 2 --output cat.svg\n"
    "attn plot simple --figure arrows --title 'Word vectors' --output words.svg\n"
    "attn run multihead --d-out 4 --save-steps s.safetensors\n"
    "attn plot s.safetensors --figure steps --output steps.svg\n"
    "printf 'Your\\njourney\\nstarts\\n' > words.txt\n"
    "printf '1,0,0\\n.5,.5,0\\n.2,.3,.5\\n' > w.csv\n"
    "attn plot w.csv --tokens words.txt --colours grey --output w.svg";

struct PlotFlags {
  PictureFlags pictures;
  ChoiceFlags choice;
  std::string figure, title;
  FigureFile file;
  std::optional<std::int64_t> query;  // counted from 1
};

using report_page::Block;
using report_page::Blocks;

std::string heads_figure(const Blocks& blocks, const Block& block, const PlotFlags& flags,
                         const figure::Options& options, bool layer_given) {
  if (blocks.blocks.size() == 1 || layer_given) return figure::heads(chosen_step(block, flags.choice), options);
  std::vector<Tensor> layers;
  for (const Block& b : blocks.blocks) layers.push_back(chosen_step(b, flags.choice));
  return figure::heads(stack(layers), options);
}

// The title: --title, or else the layer and the head that are drawn, where there are several.
std::string title_of(const Blocks& blocks, const Block& block, const PlotFlags& flags, bool all_heads) {
  if (!flags.title.empty()) return flags.title;
  if (all_heads && !flags.choice.head) return report_page::place_of(blocks, block, {});
  return report_page::place_of(blocks, block, flags.choice.head.value_or(1) - 1);
}

// Words as vectors: the inputs, and beside them the contexts where they have as many dimensions; or the step asked for.
std::string space_figure(const Pictures& pictures, const Blocks& blocks, const Block& block, const PlotFlags& flags,
                         bool step_given) {
  std::vector<figure::Points> sets;
  bool of_a_head = false;
  const auto add = [&](const std::string& step) {
    ChoiceFlags choice = flags.choice;
    choice.step = step;
    const Tensor all = chosen_step(block, choice);
    const bool one = all.size(0) == 1;  // inputs have no heads
    of_a_head = of_a_head || !one;
    sets.push_back(
        {step, one ? all.select(0, 0) : chosen_head(all, choice), options_for(pictures, block, choice).tokens});
  };
  if (step_given) {
    add(flags.choice.step);
  } else {
    add("inputs");
    const Tensor* context = block.find("context");
    if (context != nullptr && context->size(-1) == sets[0].vectors.size(1)) add("context");
  }
  return figure::space(sets, {.title = title_of(blocks, block, flags, !of_a_head), .arrows = flags.figure == "arrows"});
}

// Throws Error (argument) for a flag that the figure would ignore.
void require_used_flags(const Verb& verb, const std::string& figure, const std::string& scale) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> unused{{{"steps", "--step"},
                                                                                  {"steps", "--query"},
                                                                                  {"space", "--query"},
                                                                                  {"arrows", "--query"},
                                                                                  {"steps", "--log"},
                                                                                  {"steps", "--colour-scale"},
                                                                                  {"space", "--colour-scale"},
                                                                                  {"arrows", "--colour-scale"},
                                                                                  {"space", "--log"},
                                                                                  {"arrows", "--log"},
                                                                                  {"lines", "--colours"},
                                                                                  {"space", "--colours"},
                                                                                  {"arrows", "--colours"},
                                                                                  {"heads", "--head"}}};
  for (const auto& [name, flag] : unused) {
    if (name != figure || !verb.given(flag)) continue;
    refuse("attn plot", formatted("flags that --figure {} uses", figure), flag);
  }
  if (figure == "lines" && scale == "diverging") {
    refuse("--colour-scale", "auto, linear, row or log, which --figure lines uses", scale);
  }
}

std::string drawn(const Verb& verb, const PlotFlags& flags, const Pictures& pictures) {
  const Blocks blocks = arranged(pictures, flags.pictures.item);
  const Block& block = chosen_layer(blocks, flags.choice);
  const auto given = [&](const char* flag) { return verb.given(flag); };
  if (flags.figure == "space" || flags.figure == "arrows") {
    return space_figure(pictures, blocks, block, flags, given("--step"));
  }
  if (flags.figure == "steps") {
    return figure::steps(pictures.steps, {.title = title_of(blocks, block, flags, false),
                                          .tokens = pictures.tokens,
                                          .item = flags.pictures.item - 1,
                                          .layer = flags.choice.layer - 1,
                                          .head = flags.choice.head.value_or(1) - 1,
                                          .colours = colours_named(flags.choice.colours)});
  }
  const Tensor step = chosen_step(block, flags.choice);
  figure::Options options = options_for(pictures, block, flags.choice);
  std::string kind = flags.figure;
  const bool several = step.size(0) > 1 || (blocks.blocks.size() > 1 && !given("--layer"));
  if (kind.empty()) kind = several && !flags.choice.head ? "heads" : "heatmap";
  const bool all_layers = kind == "heads" && !given("--layer");
  options.title = all_layers ? flags.title : title_of(blocks, block, flags, kind != "heatmap");
  if (flags.query) {
    if (kind != "lines") refuse("--query", "--figure lines beside it", "--figure " + kind);
    require_index("--query", *flags.query, step.size(1));
    options.query = *flags.query - 1;
  }
  if (kind == "heads") return heads_figure(blocks, block, flags, options, given("--layer"));
  if (kind == "lines") return figure::lines(flags.choice.head ? chosen_head(step, flags.choice) : step, options);
  return figure::heatmap(chosen_head(step, flags.choice), options);
}

void plot(const Verb& verb, const PlotFlags& flags) {
  require_used_flags(verb, flags.figure, flags.choice.scale);
  Outputs outputs;
  declare_figure(verb, flags.file, outputs);
  const Pictures pictures = load_pictures(verb, flags.pictures);
  save_figure(flags.file, outputs, drawn(verb, flags, pictures), {}, [&] {
    if (!outputs.to_stdout()) write_stdout(fitted("wrote " + escaped(flags.file.path) + "\n", STDOUT_FILENO));
  });
  tell_beside(pictures.notes);
}

}  // namespace

void define_plot(Verb& verb, int&) {
  const auto flags = std::make_shared<PlotFlags>();
  add_picture_flags(verb, flags->pictures);
  add_choice_flags(verb, flags->choice);
  verb.add_option("--figure NAME", flags->figure,
                  "The figure:\n"
                  "heatmap  one head, with labels and legend\n"
                  "heads    all heads, and layers, on one scale\n"
                  "lines    from each query to its keys\n"
                  "space    words as points in 3-D, contexts hollow\n"
                  "arrows   words as vectors from the origin\n"
                  "steps    every step as a strip")
      .default_is("heads where there are several, else heatmap")
      .one_of({"heatmap", "heads", "lines", "space", "arrows", "steps"});
  verb.add_option("--query N", flags->query, "With --figure lines: only the lines of this token, counted from 1.");
  verb.add_option("--title TEXT", flags->title, "The title above the figure.")
      .default_is("the layer and the head, where there are several");
  add_figure_flags(verb, flags->file).required();
  verb.examples(kPlotExamples);
  verb.callback([&verb, flags] { plot(verb, *flags); });
}

}  // namespace attn::tool
