#include "report/report_static.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "report/report_json.hpp"

namespace attn::report_page {
namespace {

constexpr std::int64_t kMost = 64;  // cells a side
constexpr double kLeft = 120, kTop = 110, kMap = 480, kLegend = 70;

// cividis (Nuñez, Anderton, Renslow 2018, doi 10.1371/journal.pone.0199239) at nine even places.
constexpr std::array<std::array<double, 3>, 9> kCividis{{{0, 34, 78},
                                                         {26, 56, 111},
                                                         {67, 78, 108},
                                                         {97, 101, 111},
                                                         {125, 124, 120},
                                                         {155, 148, 118},
                                                         {188, 174, 108},
                                                         {222, 201, 88},
                                                         {254, 232, 56}}};

std::string colour(double share) {
  if (std::isnan(share)) return "#d0d0d0";
  const double at = std::clamp(share, 0.0, 1.0) * (kCividis.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), kCividis.size() - 2);
  std::string text = "rgb(";
  for (std::size_t c = 0; c < 3; ++c) {
    const double value = std::lerp(kCividis[below][c], kCividis[below + 1][c], at - static_cast<double>(below));
    text.append(c == 0 ? "" : ",").append(std::to_string(std::lround(value)));
  }
  return text + ")";
}

std::string number(double value) { return short_number(value, 6); }

std::string rect(double x, double y, double width, double height, const std::string& fill) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
         number(height) + "\" fill=\"" + fill + "\"/>";
}

// At most twelve characters, whole ones.
std::string shortened(const std::string& token) {
  std::size_t characters = 0, end = 0;
  for (; end < token.size(); ++end) {
    if ((static_cast<unsigned char>(token[end]) & 0xC0) != 0x80 && ++characters > 12) break;
  }
  return html_escaped(token.substr(0, end)) + (end < token.size() ? "…" : "");
}

std::string label(double x, double y, const std::string& token, bool turned) {
  const std::string at = number(x) + "," + number(y);
  return "<text text-anchor=\"" + std::string(turned ? "start" : "end") + "\" transform=\"translate(" + at + ")" +
         (turned ? " rotate(-50)" : "") + "\">" + shortened(token) + "</text>";
}

}  // namespace

std::string static_heatmap(const Tensor& weights, std::span<const std::string> queries,
                           std::span<const std::string> keys) {
  const std::int64_t tq = weights.size(0), tk = weights.size(1);
  if (tq == 0 || tk == 0) return {};
  const std::int64_t factor = (std::max(tq, tk) + kMost - 1) / kMost;
  const std::int64_t rows = (tq + factor - 1) / factor, columns = (tk + factor - 1) / factor;
  const double cell = kMap / static_cast<double>(std::max(rows, columns));
  double low = INFINITY, high = -INFINITY;
  Tensor map = Tensor::full({rows, columns}, -INFINITY, DType::f64);
  for (std::int64_t i = 0; i < tq; ++i) {
    for (std::int64_t j = 0; j < tk; ++j) {
      const double w = weights.at({i, j});
      if (std::isfinite(w)) low = std::min(low, w), high = std::max(high, w);
      map.set({i / factor, j / factor}, std::fmax(map.at({i / factor, j / factor}), w));
    }
  }
  if (!(low <= high)) low = high = 0;
  const double span = high > low ? high - low : 1, bottom = kTop + cell * static_cast<double>(rows);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 " + number(bottom + kLegend) +
                    "\" width=\"640\" role=\"img\" aria-label=\"attention weights\" font-family=\"sans-serif\" "
                    "font-size=\"13\" fill=\"#444\">";
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const double share = (map.at({i, j}) - low) / span;
      svg +=
          rect(kLeft + cell * static_cast<double>(j), kTop + cell * static_cast<double>(i), cell, cell, colour(share));
    }
  }
  const auto every = static_cast<std::int64_t>(std::ceil(16 / cell));  // labels that do not touch
  for (std::int64_t i = 0; i < rows; i += every) {
    svg += label(kLeft - 8, kTop + cell * (static_cast<double>(i) + 0.5) + 4,
                 queries[static_cast<std::size_t>(i * factor)], false);
  }
  for (std::int64_t j = 0; j < columns; j += every) {
    svg += label(kLeft + cell * (static_cast<double>(j) + 0.5), kTop - 8, keys[static_cast<std::size_t>(j * factor)],
                 true);
  }
  constexpr int steps = 48;
  for (int s = 0; s < steps; ++s) {
    svg += rect(kLeft + s * 4, bottom + 20, 4.5, 12, colour(static_cast<double>(s) / (steps - 1)));
  }
  svg += "<text x=\"" + number(kLeft) + "\" y=\"" + number(bottom + 50) + "\">" + short_number(low) + "</text>";
  svg += "<text text-anchor=\"end\" x=\"" + number(kLeft + steps * 4) + "\" y=\"" + number(bottom + 50) + "\">" +
         short_number(high) + "</text>";
  return svg + "</svg>";
}

}  // namespace attn::report_page
