#pragma once

// The polar factor and its gradient from singular values and vectors, in plain loops. For matrices
// of any size on the CPU.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "formulas/polar_weight.h"

namespace keel {

/// Matrix `index` of the batch, packed row by row.
template <typename T>
std::vector<T> load_packed(Rectangles<const T> from, std::int64_t index) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < from.rows; ++i) {
    const T* const row = from[index] + i * from.row_stride;
    all.insert(all.end(), row, row + from.columns);
  }
  return all;
}

template <typename T>
void store_packed(const std::vector<T>& from, Rectangles<T> to, std::int64_t index) {
  for (std::int64_t i = 0; i < to.rows; ++i)
    std::copy_n(from.data() + i * to.columns, to.columns, to[index] + i * to.row_stride);
}

/// The singular value decomposition of one matrix, U (m x k) and V^T (k x n) row-major. For a
/// rotation of negative determinant, the last value and its left vector are negated: t and U' of
/// keel/polar.h.
template <typename T>
struct DensePolar {
  std::int64_t m, n, k;
  std::vector<T> t, u, v;
  /// The exponent of the largest value, taken out of t, because the inverse of a tiny t may overflow.
  int exponent = 0;

  DensePolar(std::int64_t rows, std::int64_t columns, PolarKind kind, const T* values,
             const T* left, const T* right)
      : m(rows),
        n(columns),
        k(std::min(m, n)),
        t(values, values + k),
        u(left, left + m * k),
        v(right, right + k * n) {
    if (k == 0) return;
    if (std::isfinite(t[0])) std::frexp(t[0], &exponent);  // the largest, or one row's
    for (T& x : t) x = std::ldexp(x, -exponent);
    if (kind == PolarKind::orthogonal) return;
    std::vector<T> product(std::size_t(n * n));
    multiply(product);
    if (!is_negative(std::move(product))) return;
    t.back() = -t.back();
    for (std::int64_t i = 0; i < m; ++i) u[std::size_t(i * k + k - 1)] *= T(-1);
  }

  /// From the polar factor R (m x n, row-major), t and V^T, with U' = R V.
  static DensePolar from_factors(std::int64_t rows, std::int64_t columns, const T* result,
                                 const T* values, const T* right) {
    const std::int64_t k = std::min(rows, columns);
    std::vector<T> left(std::size_t(rows * k), 0);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t j = 0; j < columns; ++j)
          left[std::size_t(i * k + l)] += result[i * columns + j] * right[l * columns + j];
    return {rows, columns, PolarKind::orthogonal, values, left.data(), right};
  }

  /// Writes t, scaled back, and V^T.
  void give(T* values, T* right, std::int64_t right_stride) const {
    for (std::int64_t i = 0; i < k; ++i) {
      values[i] = std::ldexp(t[std::size_t(i)], exponent);
      std::copy_n(v.begin() + i * n, n, right + i * right_stride);
    }
  }

  /// U' V^T
  void multiply(std::vector<T>& result) const {
    std::fill(result.begin(), result.end(), T(0));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t j = 0; j < n; ++j)
          result[std::size_t(i * n + j)] += u[std::size_t(i * k + l)] * v[std::size_t(l * n + j)];
  }

  T margin(PolarKind kind) const {
    const auto at = [&](std::int64_t i) { return t[std::size_t(i)]; };
    if (k == 0 || (kind == PolarKind::rotation && k == 1))
      return k == 0 || !std::isnan(at(0)) ? std::numeric_limits<T>::infinity() : at(0);
    return std::ldexp(kind == PolarKind::orthogonal ? at(k - 1) : at(k - 2) + at(k - 1), exponent);
  }

  /// Replaces g = dL_dresult (m x n, row-major) by dL_dmatrix.
  void backward(std::vector<T>& g) const {
    const auto at = [](auto& numbers, std::int64_t i) -> auto& { return numbers[std::size_t(i)]; };
    const T largest = k == 0 ? T(0) : std::abs(t[0]);
    std::vector<T> gv(std::size_t(m * k), 0), ug(std::size_t(k * n), 0), p(std::size_t(k * k), 0);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t l = 0; l < k; ++l) {
          at(gv, i * k + l) += at(g, i * n + j) * at(v, l * n + j);
          at(ug, l * n + j) += at(u, i * k + l) * at(g, i * n + j);
        }
    for (std::int64_t a = 0; a < k; ++a)
      for (std::int64_t b = 0; b < k; ++b)
        for (std::int64_t i = 0; i < m; ++i)
          at(p, a * k + b) += at(u, i * k + a) * at(gv, i * k + b);
    std::vector<T> core(std::size_t(k * k));
    for (std::int64_t a = 0; a < k; ++a)
      for (std::int64_t b = 0; b < k; ++b)
        at(core, a * k + b) =
            (at(p, a * k + b) - at(p, b * k + a)) * polar_weight(at(t, a) + at(t, b), largest, k);
    // U' core plus, for m > n, the component of G V orthogonal to U'.
    std::vector<T> left(std::size_t(m * k), 0);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t b = 0; b < k; ++b) {
        T inside = 0, beside = at(gv, i * k + b);
        for (std::int64_t a = 0; a < k; ++a) {
          inside += at(u, i * k + a) * at(core, a * k + b);
          beside -= at(u, i * k + a) * at(p, a * k + b);
        }
        at(left, i * k + b) = inside + (m > n ? beside * polar_weight(at(t, b), largest, k) : T(0));
      }
    // For m < n, the same on the other side.
    std::vector<T> right(std::size_t(k * n), 0);
    if (m < n)
      for (std::int64_t a = 0; a < k; ++a)
        for (std::int64_t j = 0; j < n; ++j) {
          T beside = at(ug, a * n + j);
          for (std::int64_t b = 0; b < k; ++b) beside -= at(p, a * k + b) * at(v, b * n + j);
          at(right, a * n + j) = beside * polar_weight(at(t, a), largest, k);
        }
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += at(left, i * k + l) * at(v, l * n + j) + at(u, i * k + l) * at(right, l * n + j);
        at(g, i * n + j) = std::ldexp(sum, -exponent);
      }
  }

 private:
  /// Whether the determinant is negative, by elimination with pivoting. Safe for an orthogonal
  /// matrix.
  bool is_negative(std::vector<T> a) const {
    bool negative = false;
    for (std::int64_t c = 0; c < n; ++c) {
      std::int64_t pivot = c;
      for (std::int64_t i = c + 1; i < n; ++i)
        if (std::abs(a[std::size_t(i * n + c)]) > std::abs(a[std::size_t(pivot * n + c)]))
          pivot = i;
      if (pivot != c) {
        negative = !negative;
        for (std::int64_t j = 0; j < n; ++j)
          std::swap(a[std::size_t(pivot * n + j)], a[std::size_t(c * n + j)]);
      }
      const T top = a[std::size_t(c * n + c)];
      negative = negative != (top < 0);
      for (std::int64_t i = c + 1; i < n; ++i) {
        const T factor = a[std::size_t(i * n + c)] / top;
        for (std::int64_t j = c; j < n; ++j)
          a[std::size_t(i * n + j)] -= factor * a[std::size_t(c * n + j)];
      }
    }
    return negative;
  }
};

}  // namespace keel
