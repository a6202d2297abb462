#include "lab/report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace keel::lab::report {
namespace {

using Kind = Axis::Kind;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Axis, LinearStartsAtZeroAndHasRoundTicks) {
  const Axis axis(Kind::linear, {3, 47, kNaN}, /*from_zero=*/true);
  EXPECT_DOUBLE_EQ(axis(0), 0);
  EXPECT_GT(axis(47), 0.9);
  EXPECT_LE(axis(47), 1);
  const auto ticks = axis.ticks(5);
  ASSERT_EQ(ticks.size(), 5u);  // 0, 10, 20, 30, 40
  EXPECT_EQ(ticks.front().label, "0");
  EXPECT_EQ(ticks.back().label, "40");
  for (const Tick& tick : ticks) EXPECT_TRUE(axis(tick.value) >= 0 && axis(tick.value) <= 1);
}

TEST(Axis, PercentLabelsAreOfTheFraction) {
  const Axis axis(Kind::linear, {0.05, 0.61}, true, /*percent=*/true);
  const auto ticks = axis.ticks(4);
  EXPECT_EQ(ticks[1].label, "20%");
  EXPECT_DOUBLE_EQ(ticks[1].value, 0.2);
}

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

}  // namespace
}  // namespace keel::lab::report
