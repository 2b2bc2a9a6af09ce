#include "common/choice.hpp"

#include "attn/error.hpp"
#include "attn/steps.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/suggest.hpp"

namespace attn::tool {
namespace {

figure::Scale scale_named(const std::string& name) {
  return name == "linear"      ? figure::Scale::linear
         : name == "row"       ? figure::Scale::row
         : name == "log"       ? figure::Scale::log
         : name == "diverging" ? figure::Scale::diverging
                               : figure::Scale::automatic;
}

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  for (const Step& step : known_steps()) names.emplace_back(step.name);
  return names;
}

}  // namespace

void require_index(const char* flag, std::int64_t index, std::int64_t count) {
  if (index >= 1 && index <= count) return;
  refuse(flag, formatted("a number from 1 to {}", count), std::to_string(index));
}

void add_choice_flags(Verb& verb, ChoiceFlags& flags) {
  verb.add_option("--step NAME", flags.step, "The step to draw: " + joined(step_names(), ", ") + ".")
      .offers(step_names());
  verb.add_option("--layer N", flags.layer, "The layer, where there are several, counted from 1.");
  verb.add_option("--head N", flags.head, "The head, counted from 1.");
  const Option& scale = verb.add_option("--colour-scale,--color-scale NAME", flags.scale,
                                        "How values become colours:\n"
                                        "linear     colours from 0 to the largest value\n"
                                        "row        each row from 0 to its own largest value\n"
                                        "log        by the logarithm of the value\n"
                                        "diverging  0 is white, below it violet, above it orange\n"
                                        "auto       row from 12 tokens on, else linear")
                            .one_of({"auto", "linear", "row", "log", "diverging"});
  verb.add_flag("--log", flags.log, "Do the same as --colour-scale log.").not_beside(scale);
  verb.add_option("--colours,--colors NAME", flags.colours, "The colours: viridis, cividis or grey.")
      .one_of({"viridis", "cividis", "grey"});
}

report_page::Blocks arranged(const Pictures& pictures, std::int64_t item) {
  report_page::Blocks first = report_page::arrange(pictures.steps, 0);
  require_index("--item", item, std::max<std::int64_t>(first.batch, 1));
  return item == 1 ? first : report_page::arrange(pictures.steps, item - 1);
}

const report_page::Block& chosen_layer(const report_page::Blocks& blocks, const ChoiceFlags& flags) {
  if (blocks.queries == 0 || blocks.keys == 0) {
    throw Error(Error::Kind::shape, "weights", "weights (heads, queries, keys) that are not empty",
                blocks.blocks.front().weights().shape().str(), "pass a module and --input with some tokens");
  }
  require_index("--layer", flags.layer, static_cast<std::int64_t>(blocks.blocks.size()));
  return blocks.blocks[static_cast<std::size_t>(flags.layer - 1)];
}

Tensor chosen_step(const report_page::Block& block, const ChoiceFlags& flags) {
  const Tensor* step = block.find(flags.step);
  if (step == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : block.steps) names.push_back(name);
    refuse("--step", "a step among: " + joined(names, ", "), flags.step, did_you_mean(flags.step, names));
  }
  return step->rank() == 3 ? *step : step->unsqueeze(0);
}

Tensor chosen_head(const Tensor& step, const ChoiceFlags& flags) {
  const std::int64_t head = flags.head.value_or(1);
  require_index("--head", head, step.size(0));
  return step.select(0, head - 1);
}

figure::Choice choice_of(const Pictures& pictures, const ChoiceFlags& flags) {
  figure::Choice choice;
  choice.step = flags.step;
  choice.tokens = pictures.tokens, choice.key_tokens = pictures.key_tokens;
  if (flags.head) choice.head = *flags.head - 1;
  choice.scale = flags.log ? figure::Scale::log : scale_named(flags.scale);
  choice.colours = colours_named(flags.colours);
  return choice;
}

figure::Colours colours_named(const std::string& name) {
  return name == "cividis" ? figure::Colours::cividis
         : name == "grey"  ? figure::Colours::grey
                           : figure::Colours::viridis;
}

}  // namespace attn::tool
