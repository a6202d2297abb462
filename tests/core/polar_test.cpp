// Nearest orthogonal matrices and rotations: the contract of polar.h, the CPU and the one-thread CUDA solver against
// the reference, and the reference against finite differences.

#include "keel/polar.h"

#include <gtest/gtest.h>

#include <limits>

#include "formulas/polar_one_thread.h"
#include "keel/error.h"
#include "support/finite_differences.h"
#include "support/polar.h"

namespace keel::testing {
namespace {

template <typename T>
class Polar : public ::testing::Test {};
using PolarTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Polar, PolarTypes);

const std::vector<std::pair<std::int64_t, std::int64_t>> kPolarShapes = {
    {1, 1}, {2, 2}, {3, 3}, {4, 4}, {1, 3}, {4, 1}, {4, 3}, {2, 4}, {5, 5}, {9, 6}, {7, 12}};

TYPED_TEST(Polar, TheZooIsOrthonormalAndOfTheKindAskedFor) {
  using T = TypeParam;
  for (const auto& [m, n] : kPolarShapes)
    for (const auto& [name, exact] : rectangle_zoo(m, n))
      for (const PolarKind kind : kinds_for(m, n)) {
        SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
        const Rectangle<T> matrix = as<T>(exact);
        expect_polar_factor(matrix, kind, polar_on_cpu(matrix, kind).result);
        if (m <= 4 && n <= 4)
          expect_polar_factor(matrix, kind, polar_in_one_thread(matrix, kind).result);
      }
}

TYPED_TEST(Polar, MarginsAndGradientsAreTheReferences) {
  using T = TypeParam;
  for (const auto& [m, n] : kPolarShapes)
    for (std::uint64_t seed = 0; seed < 40; ++seed)
      for (const PolarKind kind : kinds_for(m, n)) {
        SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", seed " +
                     std::to_string(seed));
        const Rectangle<T> matrix = as<T>(random_rectangle(m, n, seed)),
                           gradient = as<T>(random_rectangle(m, n, 1000 + seed));
        expect_as_reference(matrix, gradient, kind, polar_on_cpu(matrix, kind, &gradient));
        if (m <= 4 && n <= 4)
          expect_as_reference(matrix, gradient, kind, polar_in_one_thread(matrix, kind, &gradient));
      }
}

TEST(PolarReference, GradientIsTheSlope) {
  const double h = 1e-4;
  for (const auto& [m, n] : kPolarShapes)
    for (const PolarKind kind : kinds_for(m, n))
      for (const bool equal : {false, true}) {
        // Also with equal values, and with a value of zero if the answer is not ambiguous.
        Rectangle<double> a = random_rectangle(m, n, 3);
        if (equal) {
          const Factors<double> basis = decompose_by_reference(a);
          a = with_values(basis, [](std::int64_t) { return 1.5; });
          if (kind == PolarKind::rotation && polar_by_reference(a, kind).margin < 1e-8)
            for (std::int64_t j = 0; j < n; ++j) a(0, j) *= -1;
        }
        const Rectangle<double> g = random_rectangle(m, n, 4);
        const Rectangle<double> slope = polar_by_reference(a, kind, &g).gradient;
        double largest = 0;
        for (const double x : slope.data) largest = larger(largest, std::abs(x));
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const auto along = [&](double step) {
              Rectangle<double> moved = a;
              moved(i, j) += step;
              const Rectangle<double> r = polar_by_reference(moved, kind).result;
              double sum = 0;
              for (std::size_t k = 0; k < r.data.size(); ++k) sum += r.data[k] * g.data[k];
              return sum;
            };
            EXPECT_NEAR(slope(i, j), central_difference(along, h), by_differences(1 + largest) * 10)
                << m << " x " << n << (equal ? ", equal values" : "");
          }
      }
}

TYPED_TEST(Polar, AmbiguousAnswersHaveBoundedGradients) {
  using T = TypeParam;
  // Two zero values; rotations whose last two values are equal, with a negative determinant.
  Rectangle<T> vanishing(3, 3), mirrored(3, 3);
  vanishing(0, 0) = 2;
  mirrored(0, 0) = 3;
  mirrored(1, 1) = 1;
  mirrored(2, 2) = -1;
  const Rectangle<T> g = as<T>(random_rectangle(3, 3, 7));
  const auto check = [&](const Rectangle<T>& a, PolarKind kind) {
    for (const auto& answer : {polar_on_cpu(a, kind, &g), polar_in_one_thread(a, kind, &g)}) {
      EXPECT_NEAR(answer.margin, T(0), 8 * kEps<T>);
      for (const T x : answer.gradient.data) EXPECT_LE(std::abs(x), T(10));
    }
  };
  check(vanishing, PolarKind::orthogonal);
  check(vanishing, PolarKind::rotation);
  check(mirrored, PolarKind::rotation);
}

TYPED_TEST(Polar, IsFreeOfScaleAndKeepsNaNToItself) {
  using T = TypeParam;
  const Rectangle<T> a = as<T>(random_rectangle(3, 3, 1)), g = as<T>(random_rectangle(3, 3, 2));
  for (const int power : {-100, 100})
    for (const bool one_thread : {false, true}) {
      const auto answer_of = [&](const Rectangle<T>& x) {
        return one_thread ? polar_in_one_thread(x, PolarKind::rotation, &g)
                          : polar_on_cpu(x, PolarKind::rotation, &g);
      };
      Rectangle<T> scaled = a;
      for (T& x : scaled.data) x = std::ldexp(x, power);
      const auto plain = answer_of(a), other = answer_of(scaled);
      EXPECT_TRUE(bitwise_equal(plain.result.data, other.result.data));
      EXPECT_EQ(other.margin, std::ldexp(plain.margin, power));
      for (std::size_t k = 0; k < 9; ++k)
        EXPECT_EQ(other.gradient.data[k], std::ldexp(plain.gradient.data[k], -power));
      scaled(1, 2) = std::numeric_limits<T>::quiet_NaN();
      const auto spoilt = answer_of(scaled);
      for (std::size_t k = 0; k < 9; ++k)
        EXPECT_TRUE(std::isnan(spoilt.result.data[k]) && std::isnan(spoilt.gradient.data[k]));
      EXPECT_TRUE(std::isnan(spoilt.margin));
    }
  Rectangle<T> broken = g;
  broken(0, 1) = std::numeric_limits<T>::infinity();
  for (const auto& answer : {polar_on_cpu(a, PolarKind::rotation, &broken),
                             polar_in_one_thread(a, PolarKind::rotation, &broken)})
    for (const T x : answer.gradient.data) EXPECT_TRUE(std::isnan(x));
}

TYPED_TEST(Polar, EmptyShapesAndErrors) {
  using T = TypeParam;
  T margin[2] = {0, 0};
  const auto none = [](std::int64_t m, std::int64_t n) { return contiguous<T>(nullptr, 2, m, n); };
  cpu::polar<T>(none(0, 3), PolarKind::orthogonal, none(0, 3), margin);
  EXPECT_EQ(margin[1], std::numeric_limits<T>::infinity());
  cpu::polar_backward<T>(none(0, 0), none(0, 0), PolarKind::rotation, none(0, 0));
  EXPECT_THROW(cpu::polar<T>(none(2, 3), PolarKind::rotation, none(2, 3)), Error);
  EXPECT_THROW(cpu::polar<T>(none(2, 3), PolarKind::orthogonal, none(3, 2)), Error);
  EXPECT_THROW(cpu::polar_backward<T>(none(2, 3), none(2, 2), PolarKind::orthogonal, none(2, 3)),
               Error);
}

}  // namespace
}  // namespace keel::testing
