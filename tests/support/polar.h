#pragma once

// Polar factors by every implementation, and checks of their properties.

#include <gtest/gtest.h>

#include "formulas/polar_one_thread.h"
#include "keel/polar.h"
#include "rectangles.h"

namespace keel::testing {

template <typename T>
struct PolarAnswer {
  Rectangle<T> result, gradient, right,
      from_factors;  ///< the gradient computed again, from the factors
  std::vector<T> values;
  T margin = T(77);
  PolarAnswer(std::int64_t m, std::int64_t n)
      : result(m, n),
        gradient(m, n),
        right(std::min(m, n), n),
        from_factors(m, n),
        values(std::size_t(std::min(m, n)), T(77)) {}
};

inline std::vector<PolarKind> kinds_for(std::int64_t m, std::int64_t n) {
  if (m == n) return {PolarKind::orthogonal, PolarKind::rotation};
  return {PolarKind::orthogonal};
}

template <typename T>
Rectangles<const T> view_of(const Rectangle<T>& a) {
  return contiguous<const T>(a.data.data(), 1, a.rows, a.columns);
}
template <typename T>
Rectangles<T> view_of(Rectangle<T>& a) {
  return contiguous(a.data.data(), 1, a.rows, a.columns);
}

template <typename T>
PolarAnswer<T> polar_on_cpu(const Rectangle<T>& a, PolarKind kind,
                            const Rectangle<T>* gradient = nullptr) {
  PolarAnswer<T> answer(a.rows, a.columns);
  cpu::polar<T>(view_of(a), kind, view_of(answer.result), &answer.margin,
                {answer.values.data(), view_of(answer.right)});
  if (gradient != nullptr) {
    cpu::polar_backward<T>(view_of(a), view_of(*gradient), kind, view_of(answer.gradient));
    cpu::polar_backward_from_factors<T>(
        view_of(answer.result),
        {answer.values.data(), view_of(static_cast<const Rectangle<T>&>(answer.right))},
        view_of(*gradient), view_of(answer.from_factors));
  }
  return answer;
}

inline PolarAnswer<double> polar_by_reference(const Rectangle<double>& a, PolarKind kind,
                                              const Rectangle<double>* gradient = nullptr) {
  PolarAnswer<double> answer(a.rows, a.columns);
  reference::polar(view_of(a), kind, view_of(answer.result), &answer.margin,
                   {answer.values.data(), view_of(answer.right)});
  if (gradient != nullptr)
    reference::polar_backward(view_of(a), view_of(*gradient), kind, view_of(answer.gradient));
  answer.from_factors = answer.gradient;
  return answer;
}

template <int ROWS, int COLUMNS>
struct FixedShape {
  static constexpr int kRows = ROWS, kColumns = COLUMNS;
};

/// Computed as the threads of cuda::polar do, on the host.
template <typename T, int M, int N>
PolarAnswer<T> polar_in_one_thread(const Rectangle<T>& a, PolarKind kind,
                                   const Rectangle<T>* gradient) {
  PolarAnswer<T> answer(a.rows, a.columns);
  const bool wide = a.rows < a.columns;
  const auto at = [&](auto& matrix, int i, int j) -> auto& {
    return matrix.data[std::size_t(wide ? j * a.columns + i : i * a.columns + j)];
  };
  const OneThreadPolar<T, M, N> polar([&](int i, int j) { return at(a, i, j); }, kind);
  polar.give([&](int i, int j, T x) { at(answer.result, i, j) = x; });
  answer.margin = polar.margin();
  const auto value = [&](int place, T x) { answer.values[std::size_t(place)] = x; };
  const auto vector = [&](int place, int j, T x) { answer.right(place, j) = x; };
  if (wide)
    polar.template give_factors<true>(value, vector);
  else
    polar.template give_factors<false>(value, vector);
  if (gradient == nullptr) return answer;
  polar.backward([&](int i, int j) { return at(*gradient, i, j); },
                 [&](int i, int j, T x) { at(answer.gradient, i, j) = x; });
  const auto again = [&](auto shape) {
    polar_backward_from<decltype(shape)::kRows, decltype(shape)::kColumns>(
        [&](int i, int j) { return answer.result(i, j); },
        static_cast<const T*>(answer.values.data()),
        [&](int l, int j) { return answer.right(l, j); },
        [&](int i, int j) { return (*gradient)(i, j); },
        [&](int i, int j, T x) { answer.from_factors(i, j) = x; });
  };
  if (wide)
    again(FixedShape<N, M>{});
  else
    again(FixedShape<M, N>{});
  return answer;
}

template <typename T>
PolarAnswer<T> polar_in_one_thread(const Rectangle<T>& a, PolarKind kind,
                                   const Rectangle<T>* gradient = nullptr) {
  return with_small_shape(
      std::max(a.rows, a.columns), std::min(a.rows, a.columns), [&](auto m, auto n) {
        return polar_in_one_thread<T, decltype(m)::value, decltype(n)::value>(a, kind, gradient);
      });
}

/// Checks that R is orthonormal, that R^T A is symmetric, and that its eigenvalues are the values of A, the last with
/// the determinant's sign. Their sum is the trace, which no other such R reaches.
template <typename T>
void expect_polar_factor(const Rectangle<T>& a, PolarKind kind, const Rectangle<T>& r) {
  const std::int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  Rectangle<double> exact(m, n);
  exact.data = as<double>(a.data);
  const Factors<double> f = decompose_by_reference(exact);
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t q = 0; q < k; ++q) {
      double dot = p == q ? -1 : 0;
      for (std::int64_t i = 0; i < std::max(m, n); ++i)
        dot += m >= n ? double(r(i, p)) * double(r(i, q)) : double(r(p, i)) * double(r(q, i));
      EXPECT_LE(std::abs(dot), rounding<T>(std::max(m, n), 1));
    }
  double trace = 0, values = 0;
  for (std::int64_t i = 0; i < m * n; ++i)
    trace += double(r.data[std::size_t(i)]) * exact.data[std::size_t(i)];
  for (std::int64_t i = 0; i < k; ++i) values += f.value(0)[i];
  double determinant = 1;
  if (m == n) {  // of an orthogonal matrix: by elimination
    std::vector<double> e = as<double>(r.data);
    for (std::int64_t c = 0; c < n; ++c) {
      std::int64_t pivot = c;
      for (std::int64_t i = c; i < n; ++i)
        if (std::abs(e[std::size_t(i * n + c)]) > std::abs(e[std::size_t(pivot * n + c)]))
          pivot = i;
      if (pivot != c) determinant = -determinant;
      for (std::int64_t j = 0; j < n; ++j)
        std::swap(e[std::size_t(pivot * n + j)], e[std::size_t(c * n + j)]);
      determinant *= e[std::size_t(c * n + c)];
      for (std::int64_t i = c + 1; i < n; ++i) {
        const double factor = e[std::size_t(i * n + c)] / e[std::size_t(c * n + c)];
        for (std::int64_t j = c; j < n; ++j)
          e[std::size_t(i * n + j)] -= factor * e[std::size_t(c * n + j)];
      }
    }
  }
  const double bound = rounding<T>(std::max(m, n), k * f.value(0)[0]);
  if (kind == PolarKind::rotation) {
    EXPECT_GT(determinant, 0.5);
    const double margin = polar_by_reference(exact, kind).margin;
    const double last = f.value(0)[k - 1];
    // Gets d s_k from the margin, which contains it.
    if (k > 1) values += margin - f.value(0)[k - 2] - last;
    if (k == 1) values = exact(0, 0);
  }
  EXPECT_NEAR(trace, values, bound);
}

/// A rounding error of the matrix is multiplied in the gradient by the inverse of the smallest sum.
template <typename T>
void expect_as_reference(const Rectangle<T>& a, const Rectangle<T>& gradient, PolarKind kind,
                         const PolarAnswer<T>& answer) {
  const std::int64_t m = a.rows, n = a.columns, longest = std::max(m, n);
  Rectangle<double> exact(m, n), slope(m, n);
  exact.data = as<double>(a.data);
  slope.data = as<double>(gradient.data);
  const PolarAnswer<double> truth = polar_by_reference(exact, kind, &slope);
  const double largest = decompose_by_reference(exact).value(0)[0];
  double size = 0, length = 0;
  for (const double x : slope.data) length += x * x;
  for (const double x : truth.gradient.data) size += x * x;
  size = std::sqrt(size);
  length = std::sqrt(length);
  if (std::isinf(truth.margin))
    EXPECT_EQ(double(answer.margin), truth.margin);
  else
    EXPECT_NEAR(double(answer.margin), truth.margin, rounding<T>(longest, largest));
  const double condition = std::isinf(truth.margin) ? 1 : 1 + largest / truth.margin;
  for (std::size_t k = 0; k < a.data.size(); ++k) {
    EXPECT_NEAR(double(answer.result.data[k]), truth.result.data[k],
                rounding<T>(longest, condition));
    EXPECT_NEAR(double(answer.gradient.data[k]), truth.gradient.data[k],
                rounding<T>(longest, condition * (size + length / largest)));
    EXPECT_NEAR(double(answer.from_factors.data[k]), truth.gradient.data[k],
                rounding<T>(longest, condition * (size + length / largest)));
  }
  for (std::size_t i = 0; i < answer.values.size(); ++i)
    EXPECT_NEAR(double(answer.values[i]), truth.values[i], rounding<T>(longest, largest));
}

}  // namespace keel::testing
