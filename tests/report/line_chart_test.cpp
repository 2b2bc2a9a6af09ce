// Line charts and sparklines: what they show, read back.
#include <cmath>
#include <sstream>

#include "attn/figure.hpp"
#include "core/testing.hpp"
#include "report/figure/axis.hpp"
#include "report/xml.hpp"

namespace attn::test {
namespace {

using figure::Axes;
using figure::line_chart;
using figure::Series;
using figure::sparkline;
using testing::Contains;

struct At {
  double x, y;
};

std::vector<At> points_of(const Element& polyline) {
  std::vector<At> points;
  std::istringstream in(polyline.attributes.at("points"));
  char comma = 0;
  for (At at{}; in >> at.x >> comma >> at.y;) points.push_back(at);
  return points;
}

// Returns where the axis puts a value, from two of its labels; the labels of y are right-aligned.
double place(const Document& d, bool y, double value, bool log = false) {
  std::vector<std::pair<double, double>> ticks;
  for (const Element& e : d.all("text")) {
    if (!e.has("text-anchor") || (e.attributes.at("text-anchor") == "end") != y || e.has("transform")) continue;
    char* end = nullptr;
    const double tick = std::strtod(e.text.c_str(), &end);
    if (*end == '\0') ticks.emplace_back(log ? std::log(tick) : tick, y ? e.number("y") - 4 : e.number("x"));
  }
  if (ticks.size() < 2) return kNan;
  const auto [a, pa] = ticks.front();
  const auto [b, pb] = ticks.back();
  return pa + ((log ? std::log(value) : value) - a) / (b - a) * (pb - pa);
}

TEST(LineChart, PutsPointsWhereTheAxesSay) {
  const std::vector<Series> series{{"train", {0, 100, 250, 1000}, {4, 2, 1.5, 0.25}},
                                   {"validation", {0, 1000}, {4.5, 1}}};
  const Document d(line_chart(series, {.title = "Losses", .x = "step", .y = "loss"}));
  const auto lines = d.all("polyline");
  ASSERT_EQ(lines.size(), 2u);
  for (std::size_t s = 0; s < 2; ++s) {
    const auto points = points_of(lines[s]);
    ASSERT_EQ(points.size(), series[s].x.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_NEAR(points[i].x, place(d, false, series[s].x[i]), 0.05);
      EXPECT_NEAR(points[i].y, place(d, true, series[s].y[i]), 0.05);
    }
  }
  for (const char* text : {"Losses", "step", "loss", "train", "validation"}) EXPECT_THAT(d.texts(), Contains(text));
}

TEST(LineChart, LogarithmicAxis) {
  const std::vector<Series> series{{"a", {1, 2, 3, 4}, {1000, 0, 1, 10}}};
  const Document d(line_chart(series, {.log_y = true}));
  const auto lines = d.all("polyline");
  ASSERT_EQ(lines.size(), 1u) << "0 has no place: a lone point, a gap, a line";
  EXPECT_EQ(d.all("circle").size(), 3u);
  EXPECT_NEAR(points_of(lines[0])[1].y, place(d, true, 10, true), 0.05);
}

TEST(LineChart, WhatIsNotFiniteIsAGap) {
  const std::vector<Series> series{{"a", {1, 2, 3, 4, 5, 6, 7}, {1, 2, kNan, 3, 4, kInf, 5}}};
  const Document d(line_chart(series, {}));
  ASSERT_EQ(d.all("polyline").size(), 2u);
  EXPECT_EQ(d.all("circle").size(), 5u);
}

TEST(LineChart, ThinningKeepsEveryPeak) {
  Series s{"long", {}, {}};
  for (int i = 0; i < 200000; ++i) s.x.push_back(i), s.y.push_back(std::sin(i / 3.0));
  s.y[123457] = 30;
  s.y[54321] = -30;
  const std::vector<Series> series{s};
  const std::string svg = line_chart(series, {});
  EXPECT_LT(svg.size(), 100000u);
  const Document d(svg);
  const auto points = points_of(d.all("polyline")[0]);
  const auto [low, high] =
      std::minmax_element(points.begin(), points.end(), [](const At& a, const At& b) { return a.y < b.y; });
  EXPECT_NEAR(low->y, place(d, true, 30), 0.05);
  EXPECT_NEAR(low->x, place(d, false, 123457), 0.05);
  EXPECT_NEAR(high->y, place(d, true, -30), 0.05);
}

TEST(LineChart, ExtremesStayInsideThePicture) {
  const double huge = std::numeric_limits<double>::max(), tiny = std::numeric_limits<double>::denorm_min();
  for (const auto& y : std::vector<std::vector<double>>{{-huge, huge},
                                                        {0, tiny},
                                                        {1, 1},
                                                        {0, 0},
                                                        {1e300, 1e300},
                                                        {1, std::nextafter(1, 2)},
                                                        {kNan, kNan},
                                                        {-5, -5}}) {
    for (const bool log : {false, true}) {
      const std::vector<Series> series{{"s", {0, 1}, y}};
      expect_inside(line_chart(series, {.log_y = log}));
      const Document d(line_chart(series, {.log_y = log}));
      for (const Element& line : d.all("polyline")) {
        for (const At& at : points_of(line)) {
          EXPECT_TRUE(at.x >= 0 && at.x <= 640 && at.y >= 0 && at.y <= 400) << y[0] << " " << y[1] << " " << at.y;
        }
      }
    }
  }
}

TEST(LineChart, HostileNamesAreText) {
  const std::string name = "</script><b a=\"1\" & 'x'>";
  const std::vector<Series> series{
      {name, {0, 1}, {0, 1}}, {std::string(10000, 'w'), {0}, {0}}, {"\xff\xfe\x01", {0}, {0}}};
  const Document d(line_chart(series, {.title = name, .x = name, .y = std::string("a\0b", 3)}));
  EXPECT_THAT(d.texts(), Contains(name));
  EXPECT_THAT(d.texts(), Contains("a␀b"));
  EXPECT_THAT(d.texts(), Contains("\\xFF\\xFE␁"));
  for (const std::string& text : d.texts()) EXPECT_LT(text.size(), 300u);
}

TEST(LineChart, EmptyIsAPictureToo) {
  EXPECT_THAT(Document(line_chart({}, {})).texts(), Contains("no finite values"));
  EXPECT_EQ(line_chart({}, {}), line_chart({}, {}));
}

TEST(Axis, StepsBy1Or2Or5) {
  const auto values = [](double high, int count) {
    std::vector<double> found;
    for (const figure::Tick& tick : figure::Axis(0, high, false).ticks(count)) found.push_back(tick.value);
    return found;
  };
  EXPECT_EQ(values(4, 4), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(6, 4), (std::vector<double>{0, 2, 4, 6}));
  EXPECT_EQ(values(12, 4), (std::vector<double>{0, 5, 10}));
  EXPECT_EQ(values(30, 4), (std::vector<double>{0, 10, 20, 30}));
}

TEST(Axis, LogarithmicStepsRiseBy1Or2Or5OrPowersOf10) {
  const auto values = [](double low, double high, int count) {
    std::vector<double> found;
    for (const figure::Tick& tick : figure::Axis(low, high, true).ticks(count)) found.push_back(tick.value);
    return found;
  };
  EXPECT_EQ(values(1, 10, 6), (std::vector<double>{1, 2, 5, 10}));
  EXPECT_EQ(values(3, 60, 6), (std::vector<double>{5, 10, 20, 50}));
  EXPECT_EQ(values(1, 1000, 6), (std::vector<double>{1, 10, 100, 1000}));
  const std::vector<double> many = values(1e-9, 1e9, 6);
  EXPECT_LE(many.size(), 7u);
  for (std::size_t i = 1; i < many.size(); ++i)
    EXPECT_NEAR(many[i] / many[i - 1], many[1] / many[0], 1e-9 * many[1] / many[0]);
  EXPECT_GE(many[1] / many[0], 10);
}

TEST(Axis, ShortNumbersAreReadBackToTheirDigits) {
  const std::pair<double, const char*> numbers[] = {
      {1e-5, "1e-5"},   {-2.5e-7, "-2.5e-7"}, {1.25e6, "1.25e6"}, {1e10, "1e10"},     {3e-300, "3e-300"},
      {1e100, "1e100"}, {0.05, "0.05"},       {1e-4, "0.0001"},   {999999, "999999"}, {-0.125, "-0.125"},
      {0, "0"},         {1234.56, "1235"},    {kInf, "inf"},      {-kInf, "-inf"},    {kNan, "NaN"}};
  for (const auto& [value, text] : numbers) EXPECT_EQ(figure::short_number(value), text);
  for (int power = -20; power < 20; ++power) {
    for (const int digits : {3, 4, 6}) {
      for (const double factor : {1.0, -2.718281828, 9.87654321}) {
        const double value = factor * std::pow(10.0, power);
        EXPECT_NEAR(std::strtod(figure::short_number(value, digits).c_str(), nullptr) / value, 1,
                    0.51 * std::pow(10.0, 1 - digits))
            << figure::short_number(value, digits);
      }
    }
  }
}

TEST(LineChart, RefusesWhatHasNoMeaning) {
  const std::vector<Series> uneven{{"a", {1, 2}, {1}}};
  expect_error(Error::Kind::shape, {"as many x as y", "2 and 1"}, [&] { line_chart(uneven, {}); });
  expect_error(Error::Kind::argument, {"160"}, [&] { line_chart({}, {.width = 10}); });
  expect_error(Error::Kind::argument, {"120"}, [&] { line_chart({}, {.height = kNan}); });
}

TEST(Sparkline, LowestToHighest) {
  const std::vector<double> values{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sparkline(values), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(values, 80, figure::Characters::ascii), "_.-~=+*#");
  EXPECT_EQ(sparkline(values, 4), "▁▃▆█");
  EXPECT_EQ(sparkline(values, 0), "");
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline(std::vector<double>{3, 3}), "▅▅");
  EXPECT_EQ(sparkline(std::vector<double>{-1e308, kNan, 1e308}), "▁?█");
}

}  // namespace
}  // namespace attn::test
