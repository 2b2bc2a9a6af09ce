// Lines over steps, as a training run's losses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "core/decimal.hpp"
#include "report/figure/axis.hpp"
#include "report/figure/colour.hpp"
#include "report/figure/svg.hpp"
#include "report/figure/text.hpp"
#include "report/figure/title.hpp"

namespace attn::figure {
namespace {

constexpr double kSeriesFont = 12, kGridFont = 11;
constexpr std::size_t kMaxName = 40;
constexpr std::size_t kDotted = 40;  // so few points are drawn as dots too

struct Point {
  double x, y;
};
using Line = std::vector<Point>;

struct Bounds {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool any() const { return low <= high; }
};

void validate(std::span<const Series> series, const Axes& axes) {
  for (const Series& s : series) {
    if (s.x.size() == s.y.size()) continue;
    throw Error(Error::Kind::shape, "line_chart", "as many x as y in " + clean(shortened(clean(s.name), kMaxName)),
                std::to_string(s.x.size()) + " and " + std::to_string(s.y.size()));
  }
  if (axes.width >= 160 && axes.height >= 120 && axes.width <= 1e5 && axes.height <= 1e5) return;
  throw Error(Error::Kind::argument, "line_chart", "a size from 160 × 120 to 100000 × 100000",
              decimal(axes.width, 6) + " × " + decimal(axes.height, 6));
}

// The finite stretches of a series.
std::vector<Line> stretches(const Series& series, bool log_y) {
  std::vector<Line> lines(1);
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const Point p{series.x[i], series.y[i]};
    if (std::isfinite(p.x) && std::isfinite(p.y) && (!log_y || p.y > 0)) {
      lines.back().push_back(p);
    } else if (!lines.back().empty()) {
      lines.emplace_back();
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

// Keeps the first, lowest, highest and last of every `group` neighbours, in their order.
Line thinned(const Line& line, std::size_t most) {
  if (line.size() <= most) return line;
  const std::size_t group = 4 * ((line.size() + most - 1) / most);
  Line result;
  for (std::size_t begin = 0; begin < line.size(); begin += group) {
    const auto first = line.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = line.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, line.size()));
    const auto [low, high] = std::minmax_element(first, last, [](const Point& a, const Point& b) { return a.y < b.y; });
    std::vector<Line::const_iterator> kept{first, low, high, last - 1};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const auto& point : kept) result.push_back(*point);
  }
  return result;
}

class Chart {
 public:
  Chart(std::span<const Series> series, const Axes& axes) : series_(series), axes_(axes) {
    Bounds x, y;
    for (const Series& s : series) {
      lines_.push_back(stretches(s, axes.log_y));
      for (const Line& line : lines_.back()) {
        for (const Point& p : line) x.take(p.x), y.take(p.y);
      }
    }
    empty_ = !x.any();
    if (empty_) x = {0, 1}, y = axes.log_y ? Bounds{1, 10} : Bounds{0, 1};
    x_ = Axis(x.low, x.high, false);
    y_ = Axis(y.low, y.high, axes.log_y);
    if (!axes.log_y) {  // some air above and below
      const double air = y_.high() / 20 - y_.low() / 20;
      if (std::isfinite(y_.high() + air) && std::isfinite(y_.low() - air)) {
        y_ = Axis(y_.low() - air, y_.high() + air, false);
      }
    }
    y_ticks_ = y_.ticks(std::max(2, static_cast<int>(axes.height / 60)));
    lay_out();
  }

  std::string svg() {
    Svg svg(axes_.width, axes_.height, axes_.title.empty() ? "Line chart" : shortened(clean(axes_.title), 200));
    title().draw(svg, 16, 10);
    names(svg);
    grid(svg);
    lines(svg);
    return svg.finish();
  }

 private:
  Title title() const { return {axes_.title, axes_.width - 32}; }

  void lay_out() {
    double widest = 0;
    for (const Tick& tick : y_ticks_) widest = std::max(widest, text_width(tick.text, kGridFont));
    left_ = 16 + (axes_.y.empty() ? 0 : 20) + widest + 8;
    right_ = axes_.width - 24;
    top_ = 16 + title().height() + (named() ? 20 : 0);
    bottom_ = axes_.height - 24 - (axes_.x.empty() ? 8 : 26);
  }
  bool named() const {
    return std::any_of(series_.begin(), series_.end(), [](const Series& s) { return !s.name.empty(); });
  }
  double px(double x) const { return left_ + x_.at(x) * (right_ - left_); }
  double py(double y) const { return bottom_ - y_.at(y) * (bottom_ - top_); }

  void names(Svg& svg) const {
    double x = left_;
    const double y = top_ - 10;
    for (std::size_t i = 0; i < series_.size(); ++i) {
      const std::string name = label(series_[i].name, kMaxName);
      if (series_[i].name.empty()) continue;
      svg.line(x, y - 4, x + 20, y - 4, {{"stroke", colour(i)}, {"stroke-width", 2.0}});
      svg.text(x + 26, y, name, {{"font-size", kSeriesFont}});
      x += 26 + text_width(name, kSeriesFont) + 16;
    }
  }

  void grid(Svg& svg) const {
    svg.open("g", {{"font-size", kGridFont}});
    for (const Tick& tick : y_ticks_) {
      const double y = py(tick.value);
      svg.line(left_, y, right_, y, {{"stroke", kRule}});
      svg.text(left_ - 8, y + 4, tick.text, {{"text-anchor", "end"}, {"fill", kFaint}});
    }
    for (const Tick& tick : x_.ticks(std::max(2, static_cast<int>((right_ - left_) / 90)))) {
      const double x = px(tick.value);
      svg.line(x, bottom_, x, bottom_ + 5, {{"stroke", kFaint}});
      svg.text(x, bottom_ + 19, tick.text, {{"text-anchor", "middle"}, {"fill", kFaint}});
    }
    svg.close("g");
    svg.line(left_, bottom_, right_, bottom_, {{"stroke", kFaint}});
    const double middle = (top_ + bottom_) / 2;
    const auto fitting = [](double length) { return static_cast<std::size_t>(length / (0.6 * kSeriesFont)); };
    if (!axes_.x.empty()) {
      svg.text((left_ + right_) / 2, bottom_ + 38, label(axes_.x, fitting(right_ - left_)),
               {{"text-anchor", "middle"}});
    }
    if (!axes_.y.empty()) {
      svg.text(24, middle, label(axes_.y, fitting(bottom_ - top_)),
               {{"text-anchor", "middle"}, {"transform", "rotate(-90 24 " + num(middle) + ")"}});
    }
    if (empty_) {
      svg.text((left_ + right_) / 2, middle, "no finite values", {{"text-anchor", "middle"}, {"fill", kFaint}});
    }
  }

  void lines(Svg& svg) const {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      svg.open("g", {{"fill", "none"}, {"stroke", colour(i)}, {"stroke-width", 1.8}, {"stroke-linejoin", "round"}});
      for (const Line& line : lines_[i]) draw(svg, line, i);
      svg.close("g");
    }
  }

  void draw(Svg& svg, const Line& line, std::size_t series) const {
    const auto most = static_cast<std::size_t>(4 * (right_ - left_));
    std::string points;
    for (const Point& p : thinned(line, most)) {
      points.append(points.empty() ? "" : " ").append(num(px(p.x))).append(",").append(num(py(p.y)));
    }
    if (line.size() > 1) svg.add("polyline", {{"points", points}});
    if (series_[series].x.size() > kDotted && line.size() > 1) return;
    for (const Point& p : line) {
      svg.add("circle", {{"cx", px(p.x)}, {"cy", py(p.y)}, {"r", 2.5}, {"fill", colour(series)}, {"stroke", "none"}},
              {}, short_number(p.x, 6) + ": " + short_number(p.y, 6));
    }
  }

  static const char* colour(std::size_t series) { return kSeries[series % kSeries.size()]; }

  std::span<const Series> series_;
  const Axes& axes_;
  std::vector<std::vector<Line>> lines_;
  Axis x_{0, 1, false}, y_{0, 1, false};
  std::vector<Tick> y_ticks_;
  bool empty_ = false;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
};

}  // namespace

std::string line_chart(std::span<const Series> series, const Axes& axes) {
  validate(series, axes);
  return Chart(series, axes).svg();
}

}  // namespace attn::figure
