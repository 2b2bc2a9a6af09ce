#include "common/figure_file.hpp"

#include "attn/figure.hpp"

namespace attn::tool {
namespace {

bool is_png(const FigureFile& file) { return file.path.ends_with(".png"); }

std::string as_named(const FigureFile& file, const std::string& svg, std::string_view text) {
  if (is_png(file)) return figure::png(svg, file.dpi);
  return file.path.ends_with(".html") ? figure::page(svg, text) : svg;
}

}  // namespace

Option& add_figure_flags(Verb& verb, FigureFile& file) {
  Option& output =
      verb.add_option("--output FILE", file.path,
                      "The figure's file: .svg, .png, or .html for a page; - writes SVG to standard output.");
  verb.add_option("--dpi N", file.dpi, "The resolution of a PNG in pixels an inch, from 24 to 1200.")
      .between(24.0, 1200.0)
      .needs(output);
  return output;
}

void declare_figure(const Verb& verb, const FigureFile& file, Outputs& outputs) {
  outputs.declare("--output", file.path, {".svg", ".png", ".html"});
  if (is_png(file)) return figure::require_png();
  if (verb.given("--dpi")) refuse("--dpi", "an --output that ends in .png", file.path);
}

void save_figure(const FigureFile& file, const Outputs& outputs, const std::string& svg, std::string_view text,
                 const std::function<void()>& print) {
  const std::string bytes = as_named(file, svg, text);
  outputs.save({{"--output", [&](io::OutputFile& to) { to.write(bytes); }}}, print);
}

}  // namespace attn::tool
