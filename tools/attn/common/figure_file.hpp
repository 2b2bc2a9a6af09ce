// The file of a figure: its flags, and what its name says of its form.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/options.hpp"
#include "common/outputs.hpp"

namespace attn::tool {

struct FigureFile {
  std::string path;
  double dpi = 192;  // of a PNG
};

// --output FILE and --dpi N. Returns the former.
Option& add_figure_flags(Verb& verb, FigureFile& file);
// Before any work: throws Error where the file cannot be written, or librsvg is not there for a PNG.
void declare_figure(const Verb& verb, const FigureFile& file, Outputs& outputs);
// `text` is what a page tells beside the figure; `print` is called as by Outputs::save().
void save_figure(const FigureFile& file, const Outputs& outputs, const std::string& svg, std::string_view text,
                 const std::function<void()>& print);

}  // namespace attn::tool
