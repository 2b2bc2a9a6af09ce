// A line of values in one line of text.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "attn/figure.hpp"

namespace attn::figure {
namespace {

constexpr std::array<std::string_view, 8> kBars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAscii{"_", ".", "-", "~", "=", "+", "*", "#"};

// The mean of each of `columns` groups of neighbours.
std::vector<double> grouped(std::span<const double> values, std::size_t columns) {
  const std::size_t count = std::min(values.size(), columns);
  std::vector<double> means;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    double sum = 0;
    for (const double value : values.subspan(begin, end - begin)) sum += value / static_cast<double>(end - begin);
    means.push_back(sum);
  }
  return means;
}

}  // namespace

std::string sparkline(std::span<const double> values, std::size_t columns, Characters characters) {
  const std::vector<double> means = grouped(values, columns);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : means) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto& bars = characters == Characters::unicode ? kBars : kAscii;
  std::string text;
  for (const double value : means) {
    if (!std::isfinite(value)) {
      text.append("?");
      continue;
    }
    // Halves: the difference may overflow. All alike: the middle.
    const double share = high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
    text.append(bars[std::min(bars.size() - 1, static_cast<std::size_t>(share * static_cast<double>(bars.size())))]);
  }
  return text;
}

}  // namespace attn::figure
