// Vectors in three dimensions: the eye, the box, the arrows.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "core/decimal.hpp"
#include "report/figure/axis.hpp"
#include "report/figure/cells.hpp"
#include "report/figure/colour.hpp"
#include "report/figure/svg.hpp"
#include "report/figure/text.hpp"
#include "report/figure/title.hpp"
#include "report/pca.hpp"

namespace attn::figure {
namespace {

constexpr double kNameFont = 12, kTickFont = 10;

struct V3 {
  double x, y, z;
};
struct V2 {
  double x, y;
};

void validate(std::span<const Points> sets, const SpaceOptions& options) {
  const auto refuse = [](const std::string& expected, const std::string& found) {
    throw Error(Error::Kind::shape, "space", expected, found);
  };
  if (sets.empty()) refuse("vectors (n, d)", "no set of them");
  for (const Points& set : sets) {
    const Tensor& v = set.vectors;
    if (!v.defined() || v.rank() != 2 || v.numel() == 0) {
      refuse("vectors (n, d), not empty", v.defined() ? v.shape().str() : "no tensor");
    }
    if (v.size(1) != sets[0].vectors.size(1)) {
      refuse("sets of one size " + std::to_string(sets[0].vectors.size(1)), v.shape().str());
    }
    if (!set.labels.empty() && static_cast<std::int64_t>(set.labels.size()) != v.size(0)) {
      refuse(std::to_string(v.size(0)) + " labels, or none", std::to_string(set.labels.size()));
    }
  }
  if (options.width >= 200 && options.height >= 160 && options.width <= 1e5 && options.height <= 1e5 &&
      std::isfinite(options.azimuth) && std::isfinite(options.elevation)) {
    return;
  }
  throw Error(Error::Kind::argument, "space", "a size from 200 × 160 to 100000 × 100000, finite angles",
              decimal(options.width, 6) + " × " + decimal(options.height, 6) + ", " + decimal(options.azimuth, 6) +
                  " and " + decimal(options.elevation, 6));
}

Tensor joined(std::span<const Points> sets) {
  std::int64_t rows = 0;
  for (const Points& set : sets) rows += set.vectors.size(0);
  Tensor all = Tensor::empty({rows, sets[0].vectors.size(1)}, DType::f64);
  std::int64_t at = 0;
  for (const Points& set : sets) {
    all.slice(0, at, at + set.vectors.size(0)).copy_from(set.vectors);
    at += set.vectors.size(0);
  }
  return all;
}

// Turned by the azimuth about z, tilted by the elevation; x to the right, y up, z towards the eye.
class Eye {
 public:
  Eye(double azimuth, double elevation) {
    constexpr double degree = std::numbers::pi / 180;
    ca_ = std::cos(azimuth * degree), sa_ = std::sin(azimuth * degree);
    ce_ = std::cos(elevation * degree), se_ = std::sin(elevation * degree);
  }
  V3 see(V3 p) const {
    const double right = -sa_ * p.x + ca_ * p.y, away = ca_ * p.x + sa_ * p.y;
    return {right, ce_ * p.z - se_ * away, se_ * p.z + ce_ * away};
  }

 private:
  double ca_, sa_, ce_, se_;
};

// Labels that do not lie on one another: the first free place around the point, beside the arrows if there is one.
class Labels {
 public:
  // `leftward`: try the left side first.
  V2 place(V2 point, double width, bool leftward) {
    constexpr double height = 13;
    constexpr double rings[] = {0, 12, 24, 36};
    for (int round = 0; round < 2 * static_cast<int>(std::size(rings)); ++round) {
      const double ring = rings[static_cast<std::size_t>(round) % std::size(rings)];
      const bool beside = round < static_cast<int>(std::size(rings));
      const V2 tries[] = {{point.x + 7, point.y + 4 - ring},         {point.x + 7, point.y + 4 + ring},
                          {point.x - 7 - width, point.y + 4 - ring}, {point.x - 7 - width, point.y + 4 + ring},
                          {point.x - width / 2, point.y - 9 - ring}, {point.x - width / 2, point.y + 18 + ring}};
      for (std::size_t i = 0; i < std::size(tries); ++i) {
        const V2& at = tries[i < 4 && leftward ? (i + 2) % 4 : i];
        const Box box{at.x, at.y - height + 3, at.x + width, at.y + 3};
        const auto meets = [&](const Box& b) { return b.meets(box); };
        if (std::any_of(taken_.begin(), taken_.end(), meets)) continue;
        if (beside && std::any_of(shafts_.begin(), shafts_.end(), meets)) continue;
        taken_.push_back(box);
        return at;
      }
    }
    return {point.x + 7, point.y + 4};
  }
  void take(V2 point) { taken_.push_back({point.x - 4, point.y - 4, point.x + 4, point.y + 4}); }
  void take_shaft(V2 from, V2 to) {
    constexpr double half = 2;
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    for (double gone = 0; gone < length; gone += 2 * half) {
      const double x = from.x + (to.x - from.x) * gone / length, y = from.y + (to.y - from.y) * gone / length;
      shafts_.push_back({x - half, y - half, x + half, y + half});
    }
  }

 private:
  struct Box {
    double left, top, right, bottom;
    bool meets(const Box& o) const { return left < o.right && o.left < right && top < o.bottom && o.top < bottom; }
  };
  std::vector<Box> taken_, shafts_;
};

class Space {
 public:
  Space(std::span<const Points> sets, const SpaceOptions& options)
      : sets_(sets), options_(options), flat_(sets[0].vectors.size(1) < 3), eye_(options.azimuth, options.elevation) {
    const Tensor all = joined(sets);
    projection_ = report_page::principal_axes(all);
    const Tensor drawn = report_page::projected(all, projection_);
    line_ = sets[0].vectors.size(1) == 1;
    double low = 0, high = 0;
    for (std::int64_t i = 0; i < drawn.size(0); ++i) {
      const V3 p{drawn.at({i, 0}), drawn.at({i, 1}), drawn.at({i, 2})};
      points_.push_back(p);
      if (!finite(p)) continue;
      low = std::min({low, p.x, p.y, p.z});
      high = std::max({high, p.x, p.y, p.z});
    }
    // One scale for all axes, so that angles are true; 0 to 1 as in the notebooks where that holds all.
    axis_ = low == 0 && high > 0.5 && high <= 1 ? Axis(0, 1, false) : Axis(low, high, false);
    fit();
  }

  std::string svg() {
    Svg svg(options_.width, options_.height, options_.title.empty() ? "Vectors" : label(options_.title, 200));
    title().draw(svg, kMargin, kMargin - 4);
    flat_ ? plane(svg) : box(svg);
    vectors(svg);
    names(svg);
    return svg.finish();
  }

 private:
  Title title() const { return {options_.title, options_.width - 2 * kMargin}; }
  static bool finite(V3 p) { return std::isfinite(p.x) && std::isfinite(p.y) && std::isfinite(p.z); }

  // Unit cube to picture, before it is fitted.
  V2 raw(V3 p) const {
    const V3 unit{axis_.at(p.x) - 0.5, axis_.at(p.y) - 0.5, axis_.at(p.z) - 0.5};
    if (line_) return {unit.x, 0};
    if (flat_) return {unit.x, -unit.y};
    const V3 seen = eye_.see(unit);
    constexpr double distance = 4;  // of the eye: a little perspective
    const double nearer = distance / (distance - seen.z);
    return {seen.x * nearer, -seen.y * nearer};
  }
  V2 at(V3 p) const {
    const V2 r = raw(p);
    return {centre_.x + scale_ * r.x, centre_.y + scale_ * r.y};
  }

  void fit() {
    V2 low{1e9, 1e9}, high{-1e9, -1e9};
    for (int corner = 0; corner < 8; ++corner) {
      const auto end = [&](int bit) { return (corner >> bit & 1) != 0 ? axis_.high() : axis_.low(); };
      const V2 r = raw({end(0), end(1), end(2)});
      low = {std::min(low.x, r.x), std::min(low.y, r.y)}, high = {std::max(high.x, r.x), std::max(high.y, r.y)};
    }
    const double top = kMargin + title().height(), side = 64, bottom = 64;
    const double width = options_.width - 2 * side, height = options_.height - top - bottom;
    scale_ = line_ ? width : std::min(width / (high.x - low.x), height / (high.y - low.y));
    centre_ = {options_.width / 2 - scale_ * (low.x + high.x) / 2, top + height / 2 - scale_ * (low.y + high.y) / 2};
  }

  std::string axis_name(std::size_t i) const {
    if (projection_.explained.empty()) return std::string(1, "XYZ"[i]);
    return "PC " + std::to_string(i + 1) + " (" + num(100 * projection_.explained[i], 1) + " %)";
  }

  void line(Svg& svg, V3 a, V3 b, const char* stroke, double width = 1) const {
    const V2 p = at(a), q = at(b);
    svg.line(p.x, p.y, q.x, q.y, {{"stroke", stroke}, {"stroke-width", width}});
  }

  void plane(Svg& svg) const {
    const double lo = axis_.low(), hi = axis_.high();
    svg.open("g", {{"font-size", kTickFont}});
    for (const Tick& t : axis_.ticks(5)) {
      line(svg, {t.value, lo, 0}, {t.value, hi, 0}, t.value == 0 ? "#bbbbbb" : kRule);
      if (!line_) line(svg, {lo, t.value, 0}, {hi, t.value, 0}, t.value == 0 ? "#bbbbbb" : kRule);
      const V2 x = at({t.value, lo, 0}), y = at({lo, t.value, 0});
      svg.text(x.x, x.y + 15, t.text, {{"text-anchor", "middle"}, {"fill", kFaint}});
      if (!line_) svg.text(y.x - 7, y.y + 4, t.text, {{"text-anchor", "end"}, {"fill", kFaint}});
    }
    if (line_) line(svg, {lo, 0, 0}, {hi, 0, 0}, "#bbbbbb");
    svg.close("g");
    const V2 x = at({(lo + hi) / 2, lo, 0}), y = at({lo, (lo + hi) / 2, 0});
    svg.text(x.x, x.y + 34, axis_name(0), {{"text-anchor", "middle"}, {"fill", kFaint}});
    if (sets_[0].vectors.size(1) > 1)
      svg.text(y.x - 40, y.y + 4, axis_name(1), {{"text-anchor", "middle"}, {"fill", kFaint}});
  }

  // The three sides of the box that lie behind, with their grids, and the edges that carry the ticks.
  void box(Svg& svg) const {
    const double lo = axis_.low(), hi = axis_.high();
    const auto ticks = axis_.ticks(5);
    const auto behind = [&](V3 towards) { return eye_.see(towards).z < 0; };
    const double bx = behind({1, 0, 0}) ? hi : lo, by = behind({0, 1, 0}) ? hi : lo, bz = behind({0, 0, 1}) ? hi : lo;
    for (const Tick& t : ticks) {
      const double v = t.value;
      line(svg, {v, lo, bz}, {v, hi, bz}, kRule), line(svg, {lo, v, bz}, {hi, v, bz}, kRule);
      line(svg, {v, by, lo}, {v, by, hi}, kRule), line(svg, {lo, by, v}, {hi, by, v}, kRule);
      line(svg, {bx, v, lo}, {bx, v, hi}, kRule), line(svg, {bx, lo, v}, {bx, hi, v}, kRule);
    }
    const double fx = lo + hi - bx, fy = lo + hi - by;  // in front
    svg.open("g", {{"font-size", kTickFont}});
    ruler(svg, ticks, {lo, fy, bz}, {hi, fy, bz}, 0);
    ruler(svg, ticks, {fx, lo, bz}, {fx, hi, bz}, 1);
    // The upright edge that is farthest to the left in the picture.
    const bool left = at({fx, by, bz}).x < at({bx, fy, bz}).x;
    const V2 edge = left ? V2{fx, by} : V2{bx, fy};
    ruler(svg, ticks, {edge.x, edge.y, lo}, {edge.x, edge.y, hi}, 2);
    svg.close("g");
  }

  // Ticks outward from the middle of the box.
  void ruler(Svg& svg, const std::vector<Tick>& ticks, V3 a, V3 b, std::size_t axis) const {
    line(svg, a, b, kFaint);
    const double middle = (axis_.low() + axis_.high()) / 2;
    const V2 centre = at({middle, middle, middle}), p = at(a), q = at(b);
    const V2 along{q.x - p.x, q.y - p.y};
    V2 out{-along.y, along.x};
    const double length = std::max(std::hypot(out.x, out.y), 1e-9);
    const bool inward = out.x * ((p.x + q.x) / 2 - centre.x) + out.y * ((p.y + q.y) / 2 - centre.y) < 0;
    out = {(inward ? -1 : 1) * out.x / length, (inward ? -1 : 1) * out.y / length};
    const char* anchor = out.x > 0.5 ? "start" : out.x < -0.5 ? "end" : "middle";
    for (const Tick& t : ticks) {
      V3 v = a;
      (axis == 0 ? v.x : axis == 1 ? v.y : v.z) = t.value;
      const V2 from = at(v);
      svg.line(from.x, from.y, from.x + 5 * out.x, from.y + 5 * out.y, {{"stroke", kFaint}});
      svg.text(from.x + 10 * out.x, from.y + 10 * out.y + 4, t.text, {{"text-anchor", anchor}, {"fill", kFaint}});
    }
    const bool upright = axis == 2;  // its name stands above it
    const V2 name = upright ? V2{q.x, q.y - 12} : V2{(p.x + q.x) / 2 + 40 * out.x, (p.y + q.y) / 2 + 40 * out.y + 4};
    svg.text(name.x, name.y, axis_name(axis), {{"text-anchor", "middle"}, {"font-size", kNameFont}, {"fill", kFaint}});
  }

  struct Written {
    V2 at;
    std::string text;
    const char *colour, *style;
  };

  // Arrows or stems first, then labels on a white rim, so that both can be read where they cross.
  void vectors(Svg& svg) {
    Labels labels;
    std::vector<Written> written;
    for (const V3& p : points_) {
      if (finite(p)) labels.take(at(p));
      if (finite(p) && options_.arrows && !line_) labels.take_shaft(at({0, 0, 0}), at(p));
    }
    std::size_t i = 0;
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      for (std::int64_t row = 0; row < sets_[set].vectors.size(0); ++row, ++i) {
        const V3 p = points_[i];
        if (!finite(p)) {
          ++skipped_;
          continue;
        }
        const char* colour = kSeries[static_cast<std::size_t>(row) % kSeries.size()];
        options_.arrows && !line_ ? arrow(svg, p, colour, set > 0) : dot(svg, p, colour, set > 0);
        if (sets_[set].labels.empty()) continue;
        const std::string text = label(sets_[set].labels[static_cast<std::size_t>(row)], kLongLabel);
        const V2 place = labels.place(at(p), text_width(text, kNameFont), options_.arrows && at(p).x < at({0, 0, 0}).x);
        written.push_back({place, text, colour, set > 0 ? "italic" : "normal"});
      }
    }
    for (const Written& w : written) {
      svg.text(w.at.x, w.at.y, w.text,
               {{"fill", "#ffffff"}, {"stroke", "#ffffff"}, {"stroke-width", 3.0}, {"font-style", w.style}});
    }
    for (const Written& w : written) svg.text(w.at.x, w.at.y, w.text, {{"fill", w.colour}, {"font-style", w.style}});
  }

  void arrow(Svg& svg, V3 p, const char* colour, bool dashed) const {
    const V2 from = at({0, 0, 0}), to = at(p);
    const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
    if (length < 1) return dot(svg, p, colour, dashed);
    const double ux = dx / length, uy = dy / length, head = std::min(9.0, length);
    const V2 neck{to.x - head * ux, to.y - head * uy};
    svg.line(from.x, from.y, neck.x, neck.y,
             {{"stroke", colour}, {"stroke-width", 1.8}, {"stroke-dasharray", dashed ? "5 3" : "none"}});
    const double half = head * 0.38;
    svg.add("polygon",
            {{"points", num(to.x) + "," + num(to.y) + " " + num(neck.x - half * uy) + "," + num(neck.y + half * ux) +
                            " " + num(neck.x + half * uy) + "," + num(neck.y - half * ux)},
             {"fill", colour}});
  }

  void dot(Svg& svg, V3 p, const char* colour, bool hollow) const {
    const V2 to = at(p);
    if (!flat_ && !options_.arrows) {  // a stem to the floor: where in the box it is
      const V2 floor = at({p.x, p.y, axis_.low()});
      svg.line(floor.x, floor.y, to.x, to.y, {{"stroke", colour}, {"stroke-width", 0.8}, {"stroke-dasharray", "2 3"}});
    }
    svg.add("circle", {{"cx", to.x},
                       {"cy", to.y},
                       {"r", 4.5},
                       {"fill", hollow ? "#ffffff" : colour},
                       {"stroke", colour},
                       {"stroke-width", 1.5}});
  }

  void names(Svg& svg) const {
    std::string text;
    for (std::size_t set = 0; set < sets_.size() && sets_.size() > 1; ++set) {
      const char* look =
          options_.arrows ? (set == 0 ? " (solid)" : " (dashed)") : (set == 0 ? " (filled)" : " (hollow)");
      text.append(text.empty() ? "" : ", ").append(label(sets_[set].name, 24)).append(look);
    }
    if (!projection_.explained.empty()) {
      double sum = 0;
      for (const double share : projection_.explained) sum += share;
      text.append(text.empty() ? "" : "; ").append(std::to_string(sets_[0].vectors.size(1)));
      text.append(" dimensions by PCA: 3 axes hold ").append(num(100 * sum, 1)).append(" % of the variance");
    }
    if (skipped_ > 0)
      text.append(text.empty() ? "" : "; ").append(std::to_string(skipped_)).append(" not finite, not drawn");
    svg.text(kMargin, options_.height - 10, text, {{"font-size", 10.0}, {"fill", kFaint}});
  }

  std::span<const Points> sets_;
  const SpaceOptions& options_;
  bool flat_, line_ = false;  // fewer than three dimensions; one
  Eye eye_;
  report_page::Projection projection_;
  std::vector<V3> points_;
  Axis axis_{0, 1, false};
  V2 centre_{0, 0};
  double scale_ = 1;
  std::size_t skipped_ = 0;
};

}  // namespace

std::string space(std::span<const Points> sets, const SpaceOptions& options) {
  validate(sets, options);
  return Space(sets, options).svg();
}

}  // namespace attn::figure
