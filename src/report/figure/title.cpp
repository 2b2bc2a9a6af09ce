#include "report/figure/title.hpp"

#include <algorithm>

#include "report/figure/text.hpp"

namespace attn::figure {
namespace {

constexpr double kFont = 14, kLine = 19, kBold = 0.64;  // of the font size: a column of bold text
constexpr std::size_t kMostColumns = 1000;              // of a title in all

}  // namespace

Title::Title(std::string_view text, double width) {
  if (text.empty()) return;
  const auto columns = static_cast<std::size_t>(std::max(width / (kBold * kFont), 8.0));
  std::string rest = label(text, kMostColumns);
  while (columns_of(rest) > columns) {
    std::string line = shortened(rest, columns);
    line.erase(line.rfind("…"));  // a word goes to the next line whole
    const std::size_t blank = line.find_last_of(' ');
    if (blank != std::string::npos && blank > 0) line.erase(blank);
    rest.erase(0, line.size());
    rest.erase(0, std::min(rest.find_first_not_of(' '), rest.size()));
    lines_.push_back(std::move(line));
  }
  lines_.push_back(std::move(rest));
}

double Title::height() const noexcept { return lines_.empty() ? 0 : 5 + kLine * static_cast<double>(lines_.size()); }

void Title::draw(Svg& svg, double x, double y) const {
  for (const std::string& line : lines_) {
    svg.text(x, y += kFont, line, {{"font-size", kFont}, {"font-weight", "bold"}});
    y += kLine - kFont;
  }
}

}  // namespace attn::figure
