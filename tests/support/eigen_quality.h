#pragma once

// The quality of an eigendecomposition, independent of single entries.

#include <algorithm>
#include <cmath>
#include <complex>

#include "batch.h"
#include "fast.h"
#include "tolerance.h"

namespace keel::testing {

struct EigenQuality {
  double residual = 0;       ///< |M V - V diag(l)| / |M|, Frobenius, per root n; absolute for M = 0
  double orthogonality = 0;  ///< |V^T V - I|, likewise
};

inline double frobenius(const std::vector<double>& entries) {
  double largest = 0, sum = 0;
  for (const double x : entries) largest = larger(largest, std::abs(x));
  if (largest == 0) return 0;
  for (const double x : entries) sum += (x / largest) * (x / largest);
  return largest * std::sqrt(sum);
}

/// The number of columns of matrix `b` that are unit vectors along an axis accepted by `wanted`.
template <typename T, typename Wanted>
std::int64_t unit_columns(const Batch<T>& vectors, std::int64_t b, const Wanted& wanted) {
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < vectors.n; ++j)
    for (std::int64_t axis = 0; axis < vectors.n; ++axis) {
      bool unit = wanted(axis);
      for (std::int64_t i = 0; i < vectors.n; ++i)
        unit = unit && std::abs(vectors(b, i, j) - T(i == axis)) <= rounding<RealOf<T>>(1, 1);
      count += unit;
    }
  return count;
}

/// residual += M V and gram += V^T V, with n rows each.
KEEL_FAST inline void add_products(std::size_t n, const double* m, const double* v,
                                   double* residual, double* gram) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < n; ++j) {
        residual[i * n + j] += m[i * n + k] * v[k * n + j];
        gram[k * n + j] += v[i * n + k] * v[i * n + j];
      }
}

/// Reads only the lower triangle of `m`.
template <typename T>
EigenQuality eigen_quality(std::int64_t n, const T* m, const T* values, const T* vectors) {
  const auto size = std::size_t(n);
  std::vector<double> full(size * size), v(size * size), residual(size * size), gram(size * size);
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j) {
      full[i * size + j] = double(i >= j ? m[i * size + j] : m[j * size + i]);
      v[i * size + j] = double(vectors[i * size + j]);
    }
  const double norm = frobenius(full);
  const double scale = norm == 0 ? 1 : norm;
  for (double& x : full) x /= scale;
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j)
      residual[i * size + j] = -v[i * size + j] * (double(values[j]) / scale);
  add_products(size, full.data(), v.data(), residual.data(), gram.data());
  for (std::size_t i = 0; i < size; ++i) gram[i * size + i] -= 1;
  const double root = std::sqrt(double(n > 0 ? n : 1));
  return {frobenius(residual) / root, frobenius(gram) / root};
}

/// Of a Hermitian matrix A + i B, by the real symmetric one (A, -B; B, A), each of whose eigenvalues
/// is there twice.
template <typename T>
EigenQuality eigen_quality(std::int64_t n, const std::complex<T>* m, const T* values,
                           const std::complex<T>* vectors) {
  const auto size = std::size_t(n), all = 2 * size;
  std::vector<double> real(all * all), v(all * all), twice(all);
  const auto set = [&](std::vector<double>& to, std::size_t i, std::size_t j, double re,
                       double im) {
    to[i * all + j] = to[(i + size) * all + j + size] = re;
    to[(i + size) * all + j] = im;
    to[i * all + j + size] = -im;
  };
  for (std::size_t i = 0; i < size; ++i) {
    twice[i] = twice[i + size] = double(values[i]);
    for (std::size_t j = 0; j < size; ++j) {
      const std::complex<double> x = m[std::max(i, j) * size + std::min(i, j)],
                                 y = vectors[i * size + j];
      set(real, i, j, x.real(), i == j ? 0 : i > j ? x.imag() : -x.imag());
      set(v, i, j, y.real(), y.imag());
    }
  }
  const EigenQuality quality = eigen_quality(2 * n, real.data(), twice.data(), v.data());
  // Norms have a factor of root 2, which the relative residual lacks but for the root of the size.
  return {std::sqrt(2.0) * quality.residual, quality.orthogonality};
}

}  // namespace keel::testing
