// Any figure of a recorded pass.
#include "report/figure/draw.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "attn/error.hpp"
#include "attn/steps.hpp"

namespace attn::figure {
namespace {

using report_page::Block, report_page::Blocks;

constexpr const char* kOp = "plot";

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw Error(Error::Kind::argument, kOp, expected, found);
}

void require_index(const char* what, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return;
  refuse(std::string(what) + " from 0 to " + std::to_string(count - 1), std::to_string(index));
}

// (heads, rows, columns)
Tensor step_of(const Block& block, const std::string& step) {
  if (const Tensor* found = block.find(step)) return found->rank() == 3 ? *found : found->unsqueeze(0);
  std::string names;
  for (const auto& [name, tensor] : block.steps) names.append(names.empty() ? "" : ", ").append(name);
  refuse("a step among " + names, "\"" + step + "\"");
}

// Figures draw what they are given, or say that they do not.
void require_used(const std::string& kind, const Choice& choice) {
  constexpr std::array<std::string_view, 6> kinds{"heatmap", "heads", "lines", "space", "arrows", "steps"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    refuse("figure among heatmap, heads, lines, space, arrows, steps", "\"" + kind + "\"");
  }
  const bool vectors = kind == "space" || kind == "arrows";
  const auto unused = [&](bool given, const char* name) {
    if (given) refuse("arguments that the figure \"" + kind + "\" uses", name);
  };
  unused(kind == "steps" && !choice.step.empty(), "step");
  unused((vectors || kind == "steps") && choice.scale != Scale::automatic, "scale");
  unused((vectors || kind == "lines") && choice.colours != Colours::viridis, "colours");
  unused(kind == "heads" && choice.head.has_value(), "head");
  unused(kind != "lines" && choice.query.has_value(), "query");
  if (kind == "lines" && choice.scale == Scale::diverging) {
    refuse("a scale of lines: automatic, linear, row or log", "diverging");
  }
}

// The title, or else the layer and the head that are drawn, where there are several.
std::string title_of(const Blocks& blocks, const Block& block, const Choice& choice, bool all_heads) {
  if (!choice.title.empty()) return choice.title;
  if (all_heads && !choice.head) return report_page::place_of(blocks, block, {});
  return report_page::place_of(blocks, block, choice.head.value_or(0));
}

// Words as vectors: the inputs, and the contexts beside them where they have as many numbers; or the step asked for.
std::string space_of(const Blocks& blocks, const Block& block, const Choice& choice, bool arrows) {
  std::vector<Points> sets;
  bool of_a_head = false;
  const auto add = [&](const std::string& step) {
    const Tensor all = step_of(block, step);
    const std::int64_t head = choice.head.value_or(0);
    require_index("head", head, all.size(0));  // inputs have one
    of_a_head = of_a_head || all.size(0) > 1;
    Choice of_step = choice;
    of_step.step = step;
    sets.push_back({step, all.select(0, head), options_of(block, of_step).tokens});
  };
  const bool chosen = !choice.step.empty();
  add(chosen ? choice.step : "inputs");
  const Tensor* context = chosen ? nullptr : block.find("context");
  if (context != nullptr && context->size(-1) == sets[0].vectors.size(1)) add("context");
  return space(sets, {.title = title_of(blocks, block, choice, !of_a_head), .arrows = arrows});
}

// Draws a step of all layers, which have as many heads each.
std::string layers_of(const Blocks& blocks, const std::string& step, const Options& options) {
  std::vector<Tensor> layers;
  for (const Block& each : blocks.blocks) {
    const Tensor& layer = layers.emplace_back(step_of(each, step));
    if (layer.shape() == layers[0].shape()) continue;
    throw Error(Error::Kind::shape, kOp, step + " of as many heads in every layer",
                layers[0].shape().str() + " in the first and " + layer.shape().str() + " in another",
                "choose one by layer=, or by --layer of the command");
  }
  return heads(stack(layers), options);
}

}  // namespace

Options options_of(const Block& block, const Choice& choice) {
  const Step& step = *find_step(choice.step);
  Options options;
  const bool other_keys = !choice.key_tokens.empty() || block.weights().size(1) != block.weights().size(2);
  options.tokens = step.of_keys && other_keys ? choice.key_tokens : choice.tokens;
  options.rows = step.of_keys ? "keys" : step.pairs() ? "queries" : "tokens";
  options.columns = step.pairs() ? "keys" : "dimensions";
  options.values = choice.step == "weights" ? "weight" : choice.step;
  options.scale = choice.scale, options.colours = choice.colours, options.query = choice.query;
  if (step.pairs()) options.key_tokens = choice.key_tokens;
  if (step.pairs() && choice.step != "masked") options.keep = block.keep_in_any_head();
  // Dimensions have numbers, not the tokens' names, also where there are as many.
  for (std::int64_t d = 0; !step.pairs() && d < block.find(choice.step)->size(-1); ++d) {
    options.key_tokens.push_back(std::to_string(d + 1));
  }
  return options;
}

std::string draw(const Trace& trace, const Choice& given) {
  const Blocks blocks = report_page::arrange(trace, given.item);
  require_index("layer", given.layer.value_or(0), static_cast<std::int64_t>(blocks.blocks.size()));
  const Block& block = blocks.blocks[static_cast<std::size_t>(given.layer.value_or(0))];
  Choice choice = given;
  if (choice.step.empty()) choice.step = "weights";
  const Tensor all = step_of(block, choice.step);
  const bool several_layers = blocks.blocks.size() > 1 && !choice.layer, several = all.size(0) > 1 || several_layers;
  const std::string kind = !choice.figure.empty() ? choice.figure : several && !choice.head ? "heads" : "heatmap";
  require_used(kind, given);
  if (kind == "space" || kind == "arrows") return space_of(blocks, block, given, kind == "arrows");
  const std::string title = title_of(blocks, block, choice, kind == "heads" || kind == "lines");
  if (kind == "steps") {
    return steps(trace, {.title = title,
                         .tokens = choice.tokens,
                         .item = choice.item,
                         .layer = choice.layer.value_or(0),
                         .head = choice.head.value_or(0),
                         .colours = choice.colours});
  }
  require_index("head", choice.head.value_or(0), all.size(0));
  Options options = options_of(block, choice);
  options.title = kind == "heads" && !choice.layer ? choice.title : title;
  if (kind == "heads") return several_layers ? layers_of(blocks, choice.step, options) : heads(all, options);
  if (kind == "lines") return lines(choice.head ? all.select(0, *choice.head) : all, options);
  return heatmap(all.select(0, choice.head.value_or(0)), options);
}

}  // namespace attn::figure
