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
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

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

template <class Value, std::size_t N>
Value named(const char* what, const std::string& name, const std::pair<const char*, Value> (&values)[N]) {
  std::string names;
  for (const auto& [known, value] : values) {
    if (name == known) return value;
    names.append(names.empty() ? "" : ", ").append(known);
  }
  throw Error(Error::Kind::argument, "plot", std::string(what) + " among " + names, "\"" + name + "\"");
}

// Sets these of Options and of a Choice.
template <class Drawing>
void colour(Drawing& options, const std::string& scale, const std::string& colours) {
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

nb::str figure_of_steps(const nb::list& steps, nb::handle figure, nb::handle step, nb::handle title, nb::handle scale,
                        nb::handle colours, std::int64_t item, nb::handle layer, nb::handle head, nb::handle tokens,
                        nb::handle key_tokens) {
  constexpr const char* op = "plot";
  const Trace trace = trace_of(steps, op);
  figure::Choice choice;
  choice.figure = plain<std::string>(figure, op, "figure"), choice.step = plain<std::string>(step, op, "step");
  choice.title = plain<std::string>(title, op, "title"), choice.item = item;
  colour(choice, plain<std::string>(scale, op, "scale"), plain<std::string>(colours, op, "colours"));
  choice.layer = optional_plain<std::int64_t>(layer, op, "layer");
  choice.head = optional_plain<std::int64_t>(head, op, "head");
  choice.tokens = plain<Texts>(tokens, op, "tokens"), choice.key_tokens = plain<Texts>(key_tokens, op, "key_tokens");
  const std::string svg = without_gil([&] { return figure::draw(trace, choice); });
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

// Tells why one layer's (heads, queries, keys) cannot be weights, or "".
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
