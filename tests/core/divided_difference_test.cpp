#include "formulas/divided_difference.h"

#include <gtest/gtest.h>

#include "reference/divided_difference.h"
#include "support/spectral.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class DividedDifference : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DividedDifference, Types);

/// Pairs that are equal, one bit apart, ... , far apart.
template <typename T>
std::vector<T> neighbours(T x) {
  const double eps = kEps<T>;
  std::vector<T> all = {x, T(x * (1 + eps)), T(x * (1 - 4 * eps))};
  for (const double factor : {1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.6, 0.99})
    all.push_back(T(x * (1 - factor)));
  for (const double factor : {1.001, 1.9, 2.1, 17.0, 1e3}) all.push_back(T(x * factor));
  return all;
}

/// The exponent as T holds it. Its rounding is the caller's, not the formula's.
template <typename T>
SpectralFunction in_type(SpectralFunction f) {
  f.exponent = double(T(f.exponent));
  return f;
}

/// With the values at hand.
template <typename T>
T difference_of_known(const SpectralMap<T>& map, T x, T y) {
  return map.difference(x, y, map.value(x), map.value(y));
}

TYPED_TEST(DividedDifference, FirstIsTheReferenceToAFewUlps) {
  using T = TypeParam;
  for (const SpectralFunction& each : kFunctions) {
    const SpectralFunction f = in_type<T>(each);
    const SpectralMap<T> map(f);
    for (const T x : {T(0.01), T(0.7), T(3)})
      for (const T y : neighbours(x)) {
        if (f.kind == Kind::exp && std::abs(double(y)) > 80) continue;
        const double truth =
            double(reference::divided_difference(f, {std::max(x, y), std::min(x, y)}));
        // exp(10) has ten times the rounding error of its argument.
        const double magnitude =
            std::abs(truth) * (f.kind == Kind::exp ? 1 + std::abs(double(std::max(x, y))) : 1);
        for (const T got : {map.difference(x, y), difference_of_known(map, x, y)})
          EXPECT_NEAR(got, truth, 16 * kEps<T> * magnitude)
              << to_string(f) << " at " << x << ", " << y;
        EXPECT_EQ(map.difference(x, y), map.difference(y, x));
        EXPECT_EQ(difference_of_known(map, x, y), difference_of_known(map, y, x));
      }
  }
}

TYPED_TEST(DividedDifference, SecondIsTheReference) {
  using T = TypeParam;
  for (const SpectralFunction& each : kFunctions) {
    const SpectralFunction f = in_type<T>(each);
    const SpectralMap<T> map(f);
    for (const T x : {T(0.01), T(0.7), T(3)})
      for (const T y : neighbours(x))
        for (const T z : neighbours(x)) {
          std::vector<reference::Real> p = {x, y, z};
          std::sort(p.begin(), p.end(), std::greater<>());
          const T a = T(p[0]), b = T(p[1]), c = T(p[2]);
          if (f.kind == Kind::exp && a > 20) continue;
          const double truth = double(reference::divided_difference(f, p));
          const double first = double(reference::divided_difference(f, {p[1], p[2]}));
          // Where f is nearly straight, its second difference is a difference of slopes, accurate to their rounding.
          const double spread =
              std::max(double(a - c), f.kind == Kind::exp ? 0.5 : 0.1 * double(a));
          EXPECT_NEAR(map.second_difference(a, b, c, map.difference(a, b), map.difference(b, c)),
                      truth, 64 * kEps<T> * (std::abs(truth) + std::abs(first) / spread))
              << to_string(f) << " at " << a << ", " << b << ", " << c;
        }
  }
}

TYPED_TEST(DividedDifference, WholePowersOfNegativeArguments) {
  using T = TypeParam;
  const SpectralMap<T> cube(SpectralFunction{Kind::power, 3}), inverse(SpectralFunction{Kind::inv}),
      minus_one(SpectralFunction{Kind::power, -1});
  for (const T x : {T(-3), T(-0.5), T(0.25), T(2)})
    for (const T y : {T(-3), T(-0.5), T(-0.499), T(0.25), T(2)}) {
      const double truth = double(x) * x + double(x) * y + double(y) * y;
      for (const T got : {cube.difference(x, y), difference_of_known(cube, x, y)})
        EXPECT_NEAR(got, truth, 16 * kEps<T> * (double(x) * x + double(y) * y));
      EXPECT_NEAR(minus_one.difference(x, y), inverse.difference(x, y),
                  16 * kEps<T> / std::abs(double(x) * y));
    }
  EXPECT_EQ(cube.difference(T(0), T(0)), 0);
  EXPECT_EQ(cube.difference(T(2), T(0)), 4);
}

TYPED_TEST(DividedDifference, AtZeroTheRootsSlopeIsZeroByConvention) {
  using T = TypeParam;
  for (const SpectralFunction& f : {SpectralFunction{Kind::sqrt}, {Kind::power, 0.5}}) {
    const SpectralMap<T> map(f);
    EXPECT_EQ(map.difference(T(0), T(0)), 0) << to_string(f);
    EXPECT_EQ(difference_of_known(map, T(0), T(0)), 0) << to_string(f);
    EXPECT_NEAR(map.difference(T(4), T(0)), 0.5, kEps<T>) << to_string(f);
    EXPECT_NEAR(difference_of_known(map, T(4), T(0)), 0.5, kEps<T>) << to_string(f);
    EXPECT_EQ(double(reference::divided_difference(f, {0, 0})), 0);
  }
  EXPECT_EQ(SpectralMap<T>(SpectralFunction{Kind::power, 1}).difference(T(0), T(0)), 1);
  EXPECT_EQ(SpectralMap<T>(SpectralFunction{Kind::power, 1.5}).difference(T(0), T(0)), 0);
}

TYPED_TEST(DividedDifference, NothingOverflowsOnTheWay) {
  using T = TypeParam;
  const double big = sizeof(T) == 4 ? 1e30 : 1e250, small = 1 / big;
  const SpectralMap<T> log(SpectralFunction{Kind::log}), exp(SpectralFunction{Kind::exp}),
      power(SpectralFunction{Kind::power, -0.25}), sqrt(SpectralFunction{Kind::sqrt});
  EXPECT_NEAR(log.difference(T(big), T(small)) * big / (2 * std::log(big)), 1, 16 * kEps<T>);
  EXPECT_NEAR(power.difference(T(big), T(small)) * big / -std::pow(small, -0.25), 1, 64 * kEps<T>);
  EXPECT_NEAR(sqrt.difference(T(small), T(small)) * 2 * std::sqrt(small), 1, 16 * kEps<T>);
  EXPECT_NEAR(exp.difference(T(80), T(-100)) / (std::exp(80.0) / 180), 1, 200 * kEps<T>);
}

TYPED_TEST(DividedDifference, PowersOverOrUnderflowOnlyWhereTheResultDoes) {
  using T = TypeParam;
  using Real = reference::Real;
  using Limits = std::numeric_limits<T>;
  // A few bits from the ends of the range, where a unit in the last place is still representable.
  const Real least = Real(Limits::min()) * 64, most = Real(Limits::max()) / 64;
  int first_count = 0, second_count = 0;
  for (const double p : {2.0, 3.0, 20.0, 1.0 / 3, 0.01, 1.5, -0.25, -1.0, -2.0, -5.5}) {
    const SpectralFunction f = in_type<T>({Kind::power, p});
    const SpectralMap<T> map(f);
    const bool whole = std::floor(p) == p;
    for (int k = Limits::min_exponent; k < Limits::max_exponent; k += 5) {
      const T x = std::ldexp(T(1.1), k - 1);
      for (const double factor : {1.0, 0.999, 0.3, 1e-9, 0.0, -0.3}) {
        const T y = T(factor) * x;
        if ((factor < 0 && !whole) || (std::abs(y) < Limits::min() && factor != 0) ||
            (y == 0 && p < 0))
          continue;
        const Real slope = reference::divided_difference(f, {x, y});
        if (!(std::abs(slope) <= most)) continue;
        if (std::abs(slope) >= least) {
          ++first_count;
          for (const T got : {map.difference(x, y), difference_of_known(map, x, y)})
            EXPECT_NEAR(double(got / slope), 1, 16 * kEps<T>)
                << "p = " << p << " at " << x << ", " << y;
        }
        if (factor == 0) continue;  // where powers below 2 have no bend
        const Real bend = reference::divided_difference(f, {x, x, y});
        const Real size = std::abs(bend) + std::abs(slope) / x;
        if (!(std::abs(bend) >= least && size <= most)) continue;
        ++second_count;
        const T got = map.second_difference(x, x, y, map.difference(x, x), map.difference(x, y));
        EXPECT_NEAR(double((got - bend) / size), 0, 64 * kEps<T>)
            << "p = " << p << " at " << x << " twice, " << y;
      }
    }
  }
  EXPECT_GT(first_count, 300);
  EXPECT_GT(second_count, 300);
}

TYPED_TEST(DividedDifference, OutsideTheDomainThereIsNoValue) {
  using T = TypeParam;
  const auto value = [](Kind kind, double x, double p = 1) {
    return SpectralMap<T>(SpectralFunction{kind, p}).value(T(x));
  };
  EXPECT_TRUE(std::isnan(value(Kind::sqrt, -1)));
  EXPECT_TRUE(std::isnan(value(Kind::inv_sqrt, 0)));
  EXPECT_TRUE(std::isnan(value(Kind::inv, 0)));
  EXPECT_TRUE(std::isnan(value(Kind::log, 0)));
  EXPECT_TRUE(std::isnan(value(Kind::log, -1)));
  EXPECT_TRUE(std::isnan(value(Kind::power, 0, -1)));
  EXPECT_TRUE(std::isnan(value(Kind::power, -1, 0.5)));
  EXPECT_EQ(value(Kind::power, -2, 3), -8);
  EXPECT_EQ(value(Kind::power, 0, 0), 1);
  EXPECT_EQ(value(Kind::sqrt, 0), 0);
}

}  // namespace
}  // namespace keel::testing
