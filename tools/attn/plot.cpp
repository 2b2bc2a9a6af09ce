// attn plot: figures for papers.
#include <unistd.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

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

// Throws Error (argument) for a flag that the figure would ignore.
void require_used_flags(const Verb& verb, const std::string& figure, const std::string& scale) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> unused{{{"steps", "--step"},
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
  if (verb.given("--query") && figure != "lines") {
    refuse("--query", "--figure lines beside it", figure.empty() ? "no --figure" : "--figure " + figure);
  }
  if (figure == "lines" && scale == "diverging") {
    refuse("--colour-scale", "auto, linear, row or log, which --figure lines uses", scale);
  }
}

// Throws Error, in the flags' words, for what is not there.
void require_there(const Verb& verb, const PlotFlags& flags, const Pictures& pictures) {
  const report_page::Blocks blocks = arranged(pictures, flags.pictures.item);
  ChoiceFlags choice = flags.choice;
  if (!verb.given("--step") && (flags.figure == "space" || flags.figure == "arrows")) choice.step = "inputs";
  const Tensor step = chosen_step(chosen_layer(blocks, choice), choice);
  chosen_head(step, choice);
  if (flags.query) require_index("--query", *flags.query, step.size(1));
}

std::string drawn(const Verb& verb, const PlotFlags& flags, const Pictures& pictures) {
  require_there(verb, flags, pictures);
  figure::Choice choice = choice_of(pictures, flags.choice);
  choice.figure = flags.figure, choice.title = flags.title, choice.item = flags.pictures.item - 1;
  if (!verb.given("--step")) choice.step.clear();
  if (verb.given("--layer")) choice.layer = flags.choice.layer - 1;
  if (flags.query) choice.query = *flags.query - 1;
  return figure::draw(pictures.steps, choice);
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
