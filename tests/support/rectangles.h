#pragma once

// Matrices of any shape for tests, their decompositions, and the quality of these.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "batch.h"
#include "keel/svd.h"
#include "random.h"
#include "tolerance.h"

namespace keel::testing {

template <typename T>
struct Rectangle {
  std::int64_t rows = 0, columns = 0;
  std::vector<T> data;

  Rectangle(std::int64_t m, std::int64_t n) : rows(m), columns(n), data(std::size_t(m * n)) {}
  T& operator()(std::int64_t i, std::int64_t j) { return data[std::size_t(i * columns + j)]; }
  T operator()(std::int64_t i, std::int64_t j) const { return data[std::size_t(i * columns + j)]; }
};

template <typename T>
struct Factors {
  std::int64_t batch, m, n, k;
  std::vector<T> values, left, right;
  std::vector<SvdStatus> status;

  Factors(std::int64_t count, std::int64_t rows, std::int64_t columns)
      : batch(count),
        m(rows),
        n(columns),
        k(std::min(m, n)),
        values(std::size_t(batch * k)),
        left(std::size_t(batch * m * k)),
        right(std::size_t(batch * k * n)),
        status(std::size_t(batch), SvdStatus(9)) {}
  const T* value(std::int64_t b) const { return values.data() + b * k; }
  const T* u(std::int64_t b) const { return left.data() + b * m * k; }
  const T* v(std::int64_t b) const { return right.data() + b * k * n; }
};

template <typename T>
Factors<T> decompose(const std::vector<Rectangle<T>>& matrices,
                     const Executor& executor = serial()) {
  const std::int64_t batch = std::int64_t(matrices.size()), m = matrices[0].rows,
                     n = matrices[0].columns;
  std::vector<T> all;
  for (const auto& matrix : matrices) all.insert(all.end(), matrix.data.begin(), matrix.data.end());
  Factors<T> f(batch, m, n);
  const auto left = contiguous(f.left.data(), batch, m, f.k),
             right = contiguous(f.right.data(), batch, f.k, n);
  cpu::svd<T>(contiguous<const T>(all.data(), batch, m, n), f.values.data(), left, right,
              f.status.data(), executor);
  return f;
}

inline Factors<double> decompose_by_reference(const Rectangle<double>& matrix) {
  Factors<double> f(1, matrix.rows, matrix.columns);
  reference::svd(contiguous(matrix.data.data(), 1, f.m, f.n), f.values.data(),
                 contiguous(f.left.data(), 1, f.m, f.k), contiguous(f.right.data(), 1, f.k, f.n),
                 f.status.data());
  return f;
}

/// Calls body(m, n) with the sizes as types, for a matrix of at most 4 x 4 with m >= n.
template <typename Body>
auto with_small_shape(std::int64_t m, std::int64_t n, const Body& body) {
  const auto with_size = [](std::int64_t size, const auto& then) {
    if (size == 1) return then(std::integral_constant<int, 1>{});
    if (size == 2) return then(std::integral_constant<int, 2>{});
    if (size == 3) return then(std::integral_constant<int, 3>{});
    return then(std::integral_constant<int, 4>{});
  };
  return with_size(m, [&](auto rows) {
    return with_size(n, [&](auto columns) {
      constexpr int kRows = decltype(rows)::value, kColumns = decltype(columns)::value;
      return body(rows, std::integral_constant < int, kColumns <= kRows ? kColumns : kRows > {});
    });
  });
}

struct SvdQuality {
  double residual = 0,
         orthogonality = 0;  ///< |A - U S V^T| / |A|; largest entry of U^T U - I, V V^T - I
};

template <typename T>
SvdQuality quality_of(const Rectangle<T>& a, const T* values, const T* u, const T* v) {
  // Wider than T, because long sums have rounding errors of their own.
  using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;
  const std::int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  SvdQuality quality;
  double size = 0;  // at unit scale, so that squares do not overflow
  for (const T x : a.data) size = larger(size, std::abs(double(x)));
  if (size == 0) size = 1;
  Wide error = 0, square = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      Wide x = Wide(a(i, j)) / size;
      square += x * x;
      for (std::int64_t l = 0; l < k; ++l)
        x -= Wide(u[i * k + l]) * (Wide(values[l]) / size) * Wide(v[l * n + j]);
      error += x * x;
    }
  quality.residual = double(square > 0 ? std::sqrt(error / square) : std::sqrt(error));
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t q = 0; q <= p; ++q) {
      Wide x = p == q ? -1 : 0, y = x;
      for (std::int64_t i = 0; i < m; ++i) x += Wide(u[i * k + p]) * u[i * k + q];
      for (std::int64_t j = 0; j < n; ++j) y += Wide(v[p * n + j]) * v[q * n + j];
      quality.orthogonality = larger(quality.orthogonality, larger(std::abs(x), std::abs(y)));
    }
  return quality;
}

inline Rectangle<double> random_rectangle(std::int64_t m, std::int64_t n, std::uint64_t seed) {
  Rectangle<double> a(m, n);
  a.data = Random(seed).normals(m * n);
  return a;
}

template <typename T>
Rectangle<T> as(const Rectangle<double>& from) {
  Rectangle<T> to(from.rows, from.columns);
  to.data = as<T>(from.data);
  return to;
}

/// U diag(values) V^T, in float64, with the singular vectors of another matrix.
inline Rectangle<double> with_values(const Factors<double>& basis,
                                     const std::function<double(std::int64_t)>& value) {
  Rectangle<double> a(basis.m, basis.n);
  for (std::int64_t i = 0; i < basis.m; ++i)
    for (std::int64_t l = 0; l < basis.k; ++l) {
      const double factor = basis.u(0)[i * basis.k + l] * value(l);
      for (std::int64_t j = 0; j < basis.n; ++j) a(i, j) += factor * basis.v(0)[l * basis.n + j];
    }
  return a;
}

struct NamedRectangle {
  std::string name;
  Rectangle<double> matrix;
};

/// Matrices that break decompositions. Made once per shape, because the reference, which finds the bases, is slow.
inline const std::vector<NamedRectangle>& rectangle_zoo(std::int64_t m, std::int64_t n) {
  static std::map<std::pair<std::int64_t, std::int64_t>, std::vector<NamedRectangle>> zoos;
  std::vector<NamedRectangle>& zoo = zoos[{m, n}];
  if (!zoo.empty()) return zoo;
  const std::int64_t k = std::min(m, n);
  const Factors<double> basis = decompose_by_reference(random_rectangle(m, n, 5));
  const auto add = [&](const char* name, const std::function<double(std::int64_t)>& value) {
    zoo.push_back({name, with_values(basis, value)});
  };
  zoo.push_back({"normal", random_rectangle(m, n, 1)});
  zoo.push_back({"zero", Rectangle<double>(m, n)});
  add("equal", [](std::int64_t) { return 2.0; });
  add("rank one", [](std::int64_t i) { return i == 0 ? 3.0 : 0.0; });
  add("last one zero", [k](std::int64_t i) { return i + 1 == k ? 0.0 : 1.0 + double(i); });
  add("clustered", [](std::int64_t i) { return 1 + 1e-7 * double(i); });
  add("geometric", [](std::int64_t i) { return std::pow(0.3, double(i)); });
  add("huge", [](std::int64_t i) { return 1e30 / double(i + 1); });
  add("tiny", [](std::int64_t i) { return 1e-30 / double(i + 1); });
  NamedRectangle unit{"identity", Rectangle<double>(m, n)}, mirror{"det < 0", unit.matrix},
      ones{"ones", unit.matrix}, dead{"dead rows and columns", random_rectangle(m, n, 3)};
  for (std::int64_t i = 0; i < k; ++i) unit.matrix(i, i) = 1, mirror.matrix(i, k - 1 - i) = 1;
  std::fill(ones.matrix.data.begin(), ones.matrix.data.end(), 1.0);
  for (std::int64_t i = 0; i < m; ++i) dead.matrix(i, n / 2) = 0;
  for (std::int64_t j = 0; j < n; ++j) dead.matrix(m / 2, j) = 0;
  for (auto* each : {&unit, &mirror, &ones, &dead}) zoo.push_back(*each);
  return zoo;
}

/// Matrices whose A^T A does not tell all columns of U apart. None is steep, but by one dominant value.
inline std::vector<NamedRectangle> uneven_spectra(std::int64_t m, std::int64_t n) {
  const std::int64_t k = std::min(m, n);
  const Factors<double> basis =
      decompose(std::vector<Rectangle<double>>{random_rectangle(m, n, 5)});
  const auto part = [k](std::int64_t i) { return double(i) / double(k - 1); };
  std::vector<NamedRectangle> all;
  const auto add = [&](const char* name, const std::function<double(std::int64_t)>& value) {
    all.push_back({name, with_values(basis, value)});
  };
  add("condition 1e3", [&](std::int64_t i) { return std::pow(1e-3, part(i)); });
  add("condition 1e5", [&](std::int64_t i) { return std::pow(1e-5, part(i)); });
  add("one dominant", [&](std::int64_t i) { return i == 0 ? 1 : 1e-5 * (1 - part(i) / 2); });
  add("one less dominant", [&](std::int64_t i) { return i == 0 ? 1 : 1e-3 * (1 - part(i) / 2); });
  add("squares", [&](std::int64_t i) { return std::pow(double(1 + i), -2); });
  add("rank deficient", [&](std::int64_t i) { return 2 * i < k ? 1 - part(i) / 2 : 0; });
  add("clusters", [&](std::int64_t i) { return 1.0 + double(4 * i / k) + 1e-13 * double(i); });
  add("wider clusters", [&](std::int64_t i) { return 1.0 + double(4 * i / k) + 1e-6 * double(i); });
  return all;
}

/// D1 C D2 with a well-conditioned C: every value must be accurate, also those far below the largest. Each row or
/// column of an m x n matrix, m >= n, is `step` times the one before. `decompose` returns the factors of a matrix.
template <typename T, typename Decompose>
void expect_digits_where_steep(std::int64_t m, std::int64_t n, double step,
                               const Decompose& decompose) {
  for (const bool by_rows : {false, true}) {
    Rectangle<double> a = random_rectangle(m, n, 11);
    for (std::int64_t j = 0; j < n; ++j) a(j, j) += 4;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        a(i, j) *= std::pow(step, double(by_rows ? std::min(i, n - 1) : j));
    const Rectangle<T> matrix = as<T>(a);
    Rectangle<double> rounded(m, n);
    rounded.data = as<double>(matrix.data);
    const Factors<double> truth = decompose_by_reference(rounded);
    const Factors<T> f = decompose(matrix);
    for (std::int64_t j = 0; j < n; ++j) {
      // For rows this steep, the reference's own digits end at the limit of its type.
      if (by_rows && truth.value(0)[j] < 1e-15 * truth.value(0)[0]) continue;
      EXPECT_LE(std::abs(f.value(0)[j] - truth.value(0)[j]), rounding<T>(n, 4) * truth.value(0)[j])
          << m << " x " << n << (by_rows ? " by rows, value " : " by columns, value ") << j;
    }
  }
}

}  // namespace keel::testing
