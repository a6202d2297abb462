#include "lab/report/svg.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

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

TEST(Svg, MatrixCellsOfOneColourAreOneStroke) {
  const auto text = matrix_svg({{1, 1, 0}, {0, -2, 0}, {0, 0, std::nan("")}}, 2, "m");
  EXPECT_NE(text.find("M0 0h2v1h-2z"), std::string::npos) << text;  // the two ones
  EXPECT_NE(text.find("M1 1h1v1h-1z"), std::string::npos) << text;
  EXPECT_NE(text.find("var(--negative)' fill-opacity='1.00'"), std::string::npos) << text;
  EXPECT_EQ(count(text, "<path"), 2u);
}

TEST(Svg, LargeMatricesAreDrawnCoarser) {
  const std::vector<std::vector<double>> ones(512, std::vector<double>(512, 1));
  const auto text = matrix_svg(ones, 1, "m");
  EXPECT_NE(text.find("viewBox='0 0 86 86'"), std::string::npos) << text.substr(0, 200);
  EXPECT_LT(text.size(), 10000u);
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
