#include "lab/report/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

using Kind = Axis::Kind;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Axis, LogarithmicCoversWholeDecades) {
  const Axis axis(Kind::logarithmic, {0.02, 30}, true);
  EXPECT_DOUBLE_EQ(axis(0.01), 0);
  EXPECT_DOUBLE_EQ(axis(100), 1);
  EXPECT_DOUBLE_EQ(axis(1), 0.5);
  EXPECT_TRUE(std::isnan(axis(0)));
  EXPECT_TRUE(std::isnan(axis(-1)));
}

TEST(Axis, ZerosHaveALineOfTheirOwnBelowTheDecades) {
  const Axis axis(Kind::logarithmic, {0, 1e-6, 1e-3}, true);
  EXPECT_DOUBLE_EQ(axis(0), 0);
  EXPECT_GT(axis(1e-6), 0.1);
  const auto ticks = axis.ticks(5);
  EXPECT_EQ(ticks.front().label, "0");
  for (std::size_t i = 1; i < ticks.size(); ++i) EXPECT_GT(axis(ticks[i].value), 0.1);
}

TEST(Axis, ManyDecadesDoNotCrowd) {
  const Axis axis(Kind::logarithmic, {1e-30, 1e30}, true);
  EXPECT_LE(axis.ticks(5).size(), 6u);
}

TEST(Axis, OneValueOrNoneStillMakesAnAxis) {
  for (const auto& values : {std::vector<double>{}, {kNaN}, {7.0}, {0.0}}) {
    for (const Kind kind : {Kind::linear, Kind::logarithmic}) {
      const Axis axis(kind, values, false);
      const auto ticks = axis.ticks(5);
      EXPECT_FALSE(ticks.empty());
      EXPECT_LT(ticks.size(), 20u);
    }
  }
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

Chart example_chart() {
  Curve curve{"<b>", 1, {1, 2, 3, 4, 5}, {1, 2, std::nan(""), 4, 5}, {}, {}, 5.0};
  return {.description = "x", .x_label = "step", .curves = {curve}};
}

TEST(Svg, NumbersThatAreNotFiniteBreakTheLineAndNeverReachTheFile) {
  const auto text = svg(example_chart());
  EXPECT_EQ(count(text, "<polyline"), 2u);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf"), std::string::npos);
}

TEST(Svg, ThePointerShowsTheNumbersOfEachPoint) {
  Chart chart = example_chart();
  EXPECT_EQ(count(svg(chart), "class='place'"), 0u);
  chart.values = chart.percent = true;
  EXPECT_EQ(count(svg(chart), "class='place'"), 4u);
  EXPECT_NE(svg(chart).find("<title>&lt;b&gt;, step 4: 400 %</title>"), std::string::npos);
}

TEST(Svg, EverythingLiesInsideTheDrawing) {
  const auto text = svg(example_chart());
  const std::regex point("([0-9.-]+),([0-9.-]+)[ ']");
  int points = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), point), end; i != end; ++i, ++points) {
    EXPECT_GE(std::stod((*i)[1]), 0);
    EXPECT_LE(std::stod((*i)[1]), 340);
    EXPECT_GE(std::stod((*i)[2]), 0);
    EXPECT_LE(std::stod((*i)[2]), 220);
  }
  EXPECT_EQ(points, 4);
}

TEST(Svg, LabelsAreEscapedAndFailuresMarked) {
  const auto text = svg(example_chart());
  EXPECT_EQ(text.find("<b>"), std::string::npos);
  EXPECT_NE(text.find("&lt;b&gt; failed at step 5"), std::string::npos);
}

TEST(Svg, ACurveWithoutOneFiniteNumberIsNoCrash) {
  Chart chart = example_chart();
  chart.curves[0].y.assign(5, std::numeric_limits<double>::infinity());
  EXPECT_EQ(count(svg(chart), "<polyline"), 0u);
  chart.curves.clear();
  EXPECT_FALSE(svg(chart).empty());
}

TEST(Text, NumbersAsPeopleReadThem) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(123456), "123456");
  EXPECT_EQ(number(1.5e-5), "1.5e-05");
  EXPECT_EQ(number(std::nan("")), "-");
  EXPECT_EQ(tick(20000), "20k");
  EXPECT_EQ(tick(1e-4), "1e-4");
  EXPECT_EQ(percent(0.1234, 2), "12.34 %");
  EXPECT_EQ(duration(4.25), "4.2 s");
  EXPECT_EQ(duration(125), "2:05");
  EXPECT_EQ(duration(3725), "1:02:05");
  EXPECT_EQ(duration(1e300), "1e+300 s");
  EXPECT_EQ(columns("±1"), 2u);
}

}  // namespace
}  // namespace keel::lab::report
