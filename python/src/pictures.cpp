// Pages and figures of steps: what Python's report() and plot() draw.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/io.hpp"
#include "attn/report.hpp"
#include "attn/steps.hpp"
#include "bind.hpp"
#include "report/html/blocks.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

using report_page::Block, report_page::Blocks;
using Texts = std::vector<std::string>;

// Named arrays as a trace. There is nothing to show of empty ones.
Trace trace_of(const nb::list& steps, const char* op) {
  Trace trace;
  for (const nb::handle& step : steps) {
    const auto name = nb::cast<std::string>(step[0]);
    const Tensor value = read(step[1], op, name.c_str()).tensor;
    if (value.numel() == 0)
      throw Error(Error::Kind::shape, op, name + " of some queries and keys", value.shape().str());
    trace.record(name, value);
  }
  return trace;
}

nb::str page_of_steps(const nb::list& steps, nb::handle tokens, nb::handle key_tokens, nb::handle title,
                      std::int64_t item, nb::handle layer, nb::handle head, const nb::list& repeated,
                      std::vector<std::int64_t> repeated_ids) {
  constexpr const char* op = "report";
  const Trace trace = trace_of(steps, "report");
  ReportOptions options;
  options.repeated = trace_of(repeated, "report"), options.repeated_ids = std::move(repeated_ids);
  options.tokens = plain<Texts>(tokens, op, "tokens"), options.key_tokens = plain<Texts>(key_tokens, op, "key_tokens");
  options.title = plain<std::string>(title, op, "title"), options.item = item;
  options.layer = optional_plain<std::int64_t>(layer, op, "layer");
  options.head = optional_plain<std::int64_t>(head, op, "head");
  const std::string page = without_gil([&] { return report(trace, options); });
  return nb::str(page.c_str(), page.size());
}

// A Choice says what is drawn, and how.
struct Choice {
  std::string figure, step, title, scale, colours;  // figure "": heads where there are several, else a heatmap
  std::int64_t item = 0;
  std::optional<std::int64_t> layer, head;
  Texts tokens, key_tokens;
};

template <class Value, std::size_t N>
Value named(const char* what, const std::string& name, const std::pair<const char*, Value> (&values)[N]) {
  std::string names;
  for (const auto& [known, value] : values) {
    if (name == known) return value;
    names.append(names.empty() ? "" : ", ").append(known);
  }
  throw Error(Error::Kind::argument, "plot", std::string(what) + " among " + names, "\"" + name + "\"");
}

void require_index(const char* what, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return;
  throw Error(Error::Kind::argument, "plot", std::string(what) + " from 0 to " + std::to_string(count - 1),
              std::to_string(index));
}

// (heads, rows, columns)
Tensor step_of(const Block& block, const std::string& step) {
  if (const Tensor* found = block.find(step)) return found->rank() == 3 ? *found : found->unsqueeze(0);
  std::string names;
  for (const auto& [name, tensor] : block.steps) names.append(names.empty() ? "" : ", ").append(name);
  throw Error(Error::Kind::argument, "plot", "a step among " + names, "\"" + step + "\"");
}

// The title, or else the layer and the head that are drawn, where there are several.
std::string title_of(const Blocks& blocks, const Block& block, const Choice& choice, bool all_heads) {
  if (!choice.title.empty()) return choice.title;
  if (all_heads && !choice.head) return report_page::place_of(blocks, block, {});
  return report_page::place_of(blocks, block, choice.head.value_or(0));
}

void colour(figure::Options& options, const std::string& scale, const std::string& colours) {
  using figure::Scale, figure::Colours;
  options.scale = named<Scale>("scale", scale,
                               {{"auto", Scale::automatic},
                                {"linear", Scale::linear},
                                {"row", Scale::row},
                                {"log", Scale::log},
                                {"diverging", Scale::diverging}});
  options.colours = named<Colours>(
      "colours", colours, {{"viridis", Colours::viridis}, {"cividis", Colours::cividis}, {"grey", Colours::grey}});
}

figure::Options options_for(const Block& block, const Choice& choice) {
  const Step& step = *find_step(choice.step);
  figure::Options options;
  const bool other_keys = !choice.key_tokens.empty() || block.weights().size(1) != block.weights().size(2);
  options.tokens = step.of_keys && other_keys ? choice.key_tokens : choice.tokens;
  options.rows = step.of_keys ? "keys" : step.pairs() ? "queries" : "tokens";
  options.columns = step.pairs() ? "keys" : "dimensions";
  options.values = choice.step == "weights" ? "weight" : choice.step;
  colour(options, choice.scale, choice.colours);
  if (step.pairs()) options.key_tokens = choice.key_tokens;
  if (step.pairs()) options.keep = block.keep_in_any_head();
  for (std::int64_t d = 0; !step.pairs() && d < block.find(choice.step)->size(-1); ++d) {
    options.key_tokens.push_back(std::to_string(d + 1));
  }
  return options;
}

// Words as vectors: the inputs, and the contexts beside them where they have as many numbers; or the step asked for.
std::string space_of(const Blocks& blocks, const Block& block, const Choice& choice, bool step_given) {
  std::vector<figure::Points> sets;
  bool of_a_head = false;
  const auto add = [&](const std::string& step) {
    const Tensor all = step_of(block, step);
    const std::int64_t head = all.size(0) == 1 ? 0 : choice.head.value_or(0);
    require_index("head", head, all.size(0));
    of_a_head = of_a_head || all.size(0) > 1;
    sets.push_back({step, all.select(0, head), choice.tokens});
  };
  add(step_given ? choice.step : "inputs");
  const Tensor* context = step_given ? nullptr : block.find("context");
  if (context != nullptr && context->size(-1) == sets[0].vectors.size(1)) add("context");
  return figure::space(sets,
                       {.title = title_of(blocks, block, choice, !of_a_head), .arrows = choice.figure == "arrows"});
}

std::string heads_of(const Blocks& blocks, const Block& block, const Choice& choice, const figure::Options& options) {
  if (blocks.blocks.size() == 1 || choice.layer) return figure::heads(step_of(block, choice.step), options);
  std::vector<Tensor> layers;
  for (const Block& each : blocks.blocks) {
    const Tensor& layer = layers.emplace_back(step_of(each, choice.step));
    if (layer.shape() == layers[0].shape()) continue;
    throw Error(Error::Kind::shape, "plot", choice.step + " of as many heads in every layer",
                layers[0].shape().str() + " in the first and " + layer.shape().str() + " in another",
                "pass layer= for one of them");
  }
  return figure::heads(stack(layers), options);
}

std::string drawn(const Trace& trace, const Choice& choice) {
  const Blocks blocks = report_page::arrange(trace, choice.item);
  require_index("layer", choice.layer.value_or(0), static_cast<std::int64_t>(blocks.blocks.size()));
  const Block& block = blocks.blocks[static_cast<std::size_t>(choice.layer.value_or(0))];
  if (choice.figure == "space" || choice.figure == "arrows") {
    return space_of(blocks, block, choice, choice.step != "weights");
  }
  if (choice.figure == "steps") {
    return figure::steps(trace, {.title = title_of(blocks, block, choice, false),
                                 .tokens = choice.tokens,
                                 .item = choice.item,
                                 .layer = choice.layer.value_or(0),
                                 .head = choice.head.value_or(0)});
  }
  const Tensor all = step_of(block, choice.step);
  require_index("head", choice.head.value_or(0), all.size(0));
  figure::Options options = options_for(block, choice);
  const bool several = all.size(0) > 1 || (blocks.blocks.size() > 1 && !choice.layer);
  const std::string kind = !choice.figure.empty() ? choice.figure : several && !choice.head ? "heads" : "heatmap";
  const bool all_layers = kind == "heads" && !choice.layer;
  options.title = all_layers ? choice.title : title_of(blocks, block, choice, kind != "heatmap");
  if (kind == "heads") return heads_of(blocks, block, choice, options);
  if (kind == "lines") return figure::lines(choice.head ? all.select(0, *choice.head) : all, options);
  if (kind == "heatmap") return figure::heatmap(all.select(0, choice.head.value_or(0)), options);
  throw Error(Error::Kind::argument, "plot", "figure among heatmap, heads, lines, space, arrows, steps",
              "\"" + kind + "\"");
}

nb::str figure_of_steps(const nb::list& steps, nb::handle figure, nb::handle step, nb::handle title, nb::handle scale,
                        nb::handle colours, std::int64_t item, nb::handle layer, nb::handle head, nb::handle tokens,
                        nb::handle key_tokens) {
  constexpr const char* op = "plot";
  const Trace trace = trace_of(steps, op);
  const Choice choice{plain<std::string>(figure, op, "figure"),
                      plain<std::string>(step, op, "step"),
                      plain<std::string>(title, op, "title"),
                      plain<std::string>(scale, op, "scale"),
                      plain<std::string>(colours, op, "colours"),
                      item,
                      optional_plain<std::int64_t>(layer, op, "layer"),
                      optional_plain<std::int64_t>(head, op, "head"),
                      plain<Texts>(tokens, op, "tokens"),
                      plain<Texts>(key_tokens, op, "key_tokens")};
  const std::string svg = without_gil([&] { return drawn(trace, choice); });
  return nb::str(svg.c_str(), svg.size());
}

// `axes`: what rows, columns and numbers are.
nb::str figure_of_table(nb::handle table, const Texts& axes, Texts rows, Texts columns, const std::string& scale,
                        nb::handle title, nb::handle colours) {
  const Tensor matrix = read(table, "plot", "a table").tensor;
  figure::Options options;
  options.title = plain<std::string>(title, "plot", "title");
  options.rows = axes.at(0), options.columns = axes.at(1), options.values = axes.at(2);
  options.tokens = std::move(rows), options.key_tokens = std::move(columns);
  colour(options, scale, plain<std::string>(colours, "plot", "colours"));
  const std::string svg = without_gil([&] { return figure::heatmap(matrix, options); });
  return nb::str(svg.c_str(), svg.size());
}

// What weights cannot be, of one layer's (heads, queries, keys), or "".
std::string doubt(const std::string& name, const Tensor& weights) {
  constexpr double most = 1.01;  // as much as rounding to 16 bits allows
  const Tensor all = weights.to(DType::f64).contiguous();
  const std::int64_t keys = all.size(-1), queries = all.size(-2);
  const double* row = all.data<double>();
  for (std::int64_t r = 0; r < all.numel() / keys; ++r, row += keys) {
    const double least = *std::min_element(row, row + keys), sum = std::accumulate(row, row + keys, 0.0);
    if (least >= 0 && sum <= most) continue;
    std::ostringstream told;
    told << "expected weights of 0 or more, of which each row sums to at most 1; found ";
    if (least < 0) {
      told << least;
    } else {
      told << "a sum of " << sum;
    }
    told << " for query " << r % queries << " of head " << r / queries << " in " << name << ", drawn as it is";
    return told.str();
  }
  return {};
}

std::string doubt_about(const nb::list& steps, const std::string& op) {
  const Trace trace = trace_of(steps, op.c_str());
  for (const auto& [name, value] : trace.steps()) {
    if (const std::string found = doubt(name, value); !found.empty()) return "[" + op + "] " + found;
  }
  return {};
}

}  // namespace

void bind_pictures(nb::module_& m) {
  m.def("page_of_steps", &page_of_steps, nb::arg("steps"), nb::arg("tokens").none(), nb::arg("key_tokens").none(),
        nb::arg("title").none(), nb::arg("item"), nb::arg("layer").none(), nb::arg("head").none(), nb::arg("repeated"),
        nb::arg("repeated_ids"), "The report's page of named steps.");
  m.def("figure_of_steps", &figure_of_steps, nb::arg("steps"), nb::arg("figure").none(), nb::arg("step").none(),
        nb::arg("title").none(), nb::arg("scale").none(), nb::arg("colours").none(), nb::arg("item"),
        nb::arg("layer").none(), nb::arg("head").none(), nb::arg("tokens").none(), nb::arg("key_tokens").none(),
        "A figure of named steps, as SVG.");
  m.def("doubt_about", &doubt_about, nb::arg("steps"), nb::arg("op"),
        "What the weights of some layer cannot be, in words, or an empty text.");
  m.def("figure_of_table", &figure_of_table, nb::arg("table"), nb::arg("axes"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("scale"), nb::arg("title").none(), nb::arg("colours").none(), "A table as cells, as SVG.");
  m.def(
      "figure_page", [](const std::string& svg) { return figure::page(svg); }, nb::arg("svg"), "An SVG as a page.");
  m.def(
      "png",
      [](const std::string& svg, nb::handle dpi) {
        const auto resolution = plain<double>(dpi, "save", "dpi");
        if (!(resolution >= 24 && resolution <= 1200)) {
          throw Error(Error::Kind::argument, "save", "dpi from 24 to 1200", std::to_string(resolution));
        }
        const std::string bytes = without_gil([&] { return figure::png(svg, resolution); });
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("svg"), nb::arg("dpi").none(), "An SVG as the bytes of a PNG file.");
  m.def(
      "save",
      [](const std::string& path, const nb::bytes& content) {
        const std::string_view bytes(content.c_str(), content.size());
        without_gil([&] { io::save_text(path, bytes); });
      },
      nb::arg("path"), nb::arg("content"), "Writes a file, whole or not at all.");
}

}  // namespace attn::python
