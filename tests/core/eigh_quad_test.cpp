// The 4 x 4 matrices at the bottom of the CUDA solver's divide and conquer, run on the host.

#include "formulas/quad.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "support/eigen_quality.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
struct SolvedQuad {
  T matrix[16] = {}, values[4], vectors[16];

  SolvedQuad(const T (&diagonal)[4], const T (&off)[6]) {
    for (int i = 0, at = 0; i < 4; ++i) {
      matrix[5 * i] = diagonal[i];
      for (int j = i + 1; j < 4; ++j) matrix[4 * i + j] = matrix[4 * j + i] = off[at++];
    }
    for (int i = 0; i < 4; ++i) {
      Quad<T> quad([&](int r, int c) { return matrix[4 * r + c]; }, i);
      quad.solve();
      EXPECT_TRUE(quad.diagonalised());
      for (int j = 0; j < 4; ++j) {
        vectors[4 * i + j] = quad.row[j];
        // A thread that keeps another row must have taken the same path.
        if (i > 0) {
          EXPECT_EQ(values[j], quad.diagonal[j]);
        }
        values[j] = quad.diagonal[j];
      }
    }
  }
  EigenQuality quality() const { return eigen_quality<T>(4, matrix, values, vectors); }
};

template <typename T>
class EighQuad : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EighQuad, Types);

TYPED_TEST(EighQuad, DiagonalAndOrthogonal) {
  using T = TypeParam;
  std::mt19937 generator(5);
  std::uniform_real_distribution<double> uniform(-1, 1), exponent(-40, 0);
  for (int trial = 0; trial < 20000; ++trial) {
    T diagonal[4], off[6];
    const auto draw = [&](int kind) {
      if (kind == 0) return T(uniform(generator));
      if (kind == 1) return T(uniform(generator) * std::pow(10.0, exponent(generator)));
      if (kind == 2) return T(0);
      return T(0.5);  // equal numbers
    };
    for (T& x : diagonal) x = draw(trial % 4);
    for (T& x : off) x = draw(trial / 4 % 4);
    if (trial / 16 % 2 == 0) off[1] = off[2] = off[4] = 0;  // tridiagonal, as in divide and conquer
    const int coupled[] = {0, 3, 5};
    off[coupled[trial % 3]] = 1;  // of unit size
    const EigenQuality quality = SolvedQuad<T>(diagonal, off).quality();
    // A vector passes through at most fifteen rotations, each wrong by half a rounding.
    ASSERT_LE(quality.residual, 8 * kEps<T>) << "trial " << trial;
    ASSERT_LE(quality.orthogonality, 8 * kEps<T>) << "trial " << trial;
  }
}

TYPED_TEST(EighQuad, PartsAreWorkedAtTheirOwnSize) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::min() * 64;
  // (row, column) of the nonzeros, and the size of the part that each row belongs to.
  struct Case {
    std::vector<std::pair<int, int>> pairs;
    T size[4];
  };
  for (const Case& each : std::vector<Case>{{{{0, 2}, {1, 3}}, {1, T(1e-9), 1, T(1e-9)}},
                                            {{{0, 3}, {1, 2}}, {tiny, 3, 3, tiny}},
                                            {{{0, 1}, {1, 3}}, {T(1e-20), T(1e-20), 7, T(1e-20)}},
                                            {{{0, 3}, {2, 3}, {1, 2}}, {5, 5, 5, 5}},
                                            {{}, {1, T(1e-9), 0, tiny}}}) {
    T matrix[16] = {};
    for (int i = 0; i < 4; ++i) matrix[5 * i] = T(0.3 + 0.1 * i) * each.size[i];
    for (const auto& [i, j] : each.pairs)
      matrix[4 * i + j] = matrix[4 * j + i] = T(0.7) * each.size[i];
    const auto entry = [&](int r, int c) { return matrix[4 * r + c]; };
    T vectors[16], values[4];
    for (int row = 0; row < 4; ++row) {
      Quad<T> quad(entry, row);
      int exponent[4];
      quad.scale_parts(exponent);
      quad.for_each([](T& x) { EXPECT_LT(std::abs(x), T(1)); });
      quad.solve();
      for (int j = 0; j < 4; ++j) {
        vectors[4 * row + j] = quad.row[j];
        values[j] = std::ldexp(quad.diagonal[j], exponent[j]);
      }
    }
    for (int j = 0; j < 4; ++j)
      for (int r = 0; r < 4; ++r) {
        if (each.size[r] != each.size[j]) {
          EXPECT_EQ(vectors[4 * r + j], T(0));
        }
        double residual = -double(values[j]) * double(vectors[4 * r + j]);
        for (int k = 0; k < 4; ++k) residual += double(entry(r, k)) * double(vectors[4 * k + j]);
        EXPECT_LE(std::abs(residual), 8 * kEps<T> * double(each.size[j]));
      }
  }
}

TYPED_TEST(EighQuad, OneRowThatHasAllForNeighboursHoldsThemTogether) {
  using T = TypeParam;
  const auto holds = [](int n, T a, T b, T c) {
    const T off[] = {a, b, c};
    return Quad<T>([&](int i, int j) { return i == 0 && j > 0 ? off[j - 1] : T(0); }, 0)
        .first_holds_together(n);
  };
  EXPECT_TRUE(holds(1, 0, 0, 0));
  EXPECT_FALSE(holds(2, 0, 0, 0));
  EXPECT_TRUE(holds(2, 1, 0, 0));
  EXPECT_TRUE(holds(3, 1, 1, 0));
  EXPECT_FALSE(holds(3, 0, 1, 0));
  EXPECT_FALSE(holds(4, 1, 1, 0));
  EXPECT_TRUE(holds(4, 1, T(-1e-30), 1));
}

TYPED_TEST(EighQuad, WhatIsNotCoupledStays) {
  using T = TypeParam;
  const SolvedQuad<T> solved({T(0.3), T(0.7), T(0.1), T(0.9)}, {T(0.2)});
  EXPECT_EQ(solved.values[2], T(0.1));
  EXPECT_EQ(solved.values[3], T(0.9));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(solved.vectors[4 * r + 2], T(r == 2));
    EXPECT_EQ(solved.vectors[4 * r + 3], T(r == 3));
  }
}

}  // namespace
}  // namespace keel::testing
