#include "report/figure/title.hpp"

#include <algorithm>

#include "report/figure/text.hpp"

namespace attn::figure {
namespace {

constexpr double kTitleFont = 14, kLine = 19, kBold = 0.64;  // of the font size: a column of bold text
constexpr double kSmall = 10, kSmallLine = 14;
constexpr std::size_t kMostColumns = 1000;  // of a title in all

}  // namespace

Title::Title(std::string_view text, double width) {
  if (text.empty()) return;
  const auto columns = static_cast<std::size_t>(std::max(width / (kBold * kTitleFont), 8.0));
  lines_ = broken(label(text, kMostColumns), columns);
}

double Title::height() const noexcept { return lines_.empty() ? 0 : 5 + kLine * static_cast<double>(lines_.size()); }

void Title::draw(Svg& svg, double x, double y) const {
  for (const std::string& line : lines_) {
    svg.text(x, y += kTitleFont, line, {{"font-size", kTitleFont}, {"font-weight", "bold"}});
    y += kLine - kTitleFont;
  }
}

Note::Note(std::string_view text, double width) {
  if (!text.empty())
    lines_ = broken(std::string(text), static_cast<std::size_t>(std::max(width / (0.6 * kSmall), 8.0)));
}

double Note::height() const noexcept { return kSmallLine * static_cast<double>(lines_.size()); }

void Note::draw(Svg& svg, double x, double y) const {
  for (const std::string& line : lines_) {
    svg.text(x, y, line, {{"font-size", kSmall}, {"fill", kFaint}});
    y += kSmallLine;
  }
}

}  // namespace attn::figure
