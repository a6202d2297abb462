#pragma once

// Decompositions of one matrix by svd: stored as a team of threads gives them, and checked.

#include "rectangles.h"

namespace keel::testing {

/// Stores what a team's solver found. The solver works on the transpose of a wide matrix.
template <typename Solver, typename T>
void store_factors(Solver& solver, Factors<T>& f) {
  const bool wide = f.m < f.n;
  solver.give(
      !wide, [&](int c, T x) { f.values[std::size_t(c)] = x; },
      [&](int i, int c, T x) {
        (wide ? f.right[std::size_t(c * f.n + i)] : f.left[std::size_t(i * f.k + c)]) = x;
      },
      [&](int c, int j, T x) {
        (wide ? f.left[std::size_t(j * f.k + c)] : f.right[std::size_t(c * f.n + j)]) = x;
      });
}

/// U S V^T is the matrix, U and V are orthogonal, and order and signs are those of keel/svd.h.
template <typename T>
void expect_decomposition(const Rectangle<T>& a, const Factors<T>& f, std::int64_t b = 0) {
  ASSERT_EQ(f.status[std::size_t(b)], SvdStatus::converged);
  const SvdQuality quality = quality_of(a, f.value(b), f.u(b), f.v(b));
  ASSERT_LE(quality.residual, rounding<T>(std::max(f.m, f.n), 1));
  ASSERT_LE(quality.orthogonality, rounding<T>(std::max(f.m, f.n), 1));
  for (std::int64_t j = 0; j < f.k; ++j) {
    ASSERT_GE(f.value(b)[j], T(0));
    ASSERT_GE(f.value(b)[std::max<std::int64_t>(j - 1, 0)], f.value(b)[j]);
    T peak = 0;
    for (std::int64_t i = 0; i < f.m; ++i)
      if (std::abs(f.u(b)[i * f.k + j]) > std::abs(peak)) peak = f.u(b)[i * f.k + j];
    ASSERT_GT(peak, T(0));
  }
}

}  // namespace keel::testing
