// The lines above a figure, and the small ones below it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/figure/svg.hpp"

namespace attn::figure {

class Title {
 public:
  // Broken at blanks so that no line is wider than `width`; a longer word has a line of its own, broken too.
  Title(std::string_view text, double width);

  double height() const noexcept;  // 0 without a text
  void draw(Svg& svg, double x, double y) const;

 private:
  std::vector<std::string> lines_;
};

class Note {
 public:
  Note(std::string_view text, double width);

  double height() const noexcept;                 // 0 without a text
  void draw(Svg& svg, double x, double y) const;  // y: of the first line

 private:
  std::vector<std::string> lines_;
};

}  // namespace attn::figure
