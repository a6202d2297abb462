#pragma once

// A dense n x n matrix in float64, so that the code reads like the formulas.

#include <cstdint>
#include <vector>

#include "keel/matrices.h"

namespace keel::reference {

struct Dense {
  std::int64_t n = 0;
  std::vector<double> entries;

  explicit Dense(std::int64_t size) : n(size), entries(std::size_t(size * size)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return entries[std::size_t(i * n + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const {
    return entries[std::size_t(i * n + j)];
  }
};

inline Dense load(Matrices<const double> matrices, std::int64_t b) {
  Dense loaded(matrices.n);
  for (std::int64_t i = 0; i < matrices.n; ++i)
    for (std::int64_t j = 0; j < matrices.n; ++j)
      loaded(i, j) = matrices[b][i * matrices.row_stride + j];
  return loaded;
}

/// The symmetric matrix whose lower triangle is given.
inline Dense load_lower(Matrices<const double> matrices, std::int64_t b) {
  Dense loaded = load(matrices, b);
  for (std::int64_t i = 0; i < loaded.n; ++i)
    for (std::int64_t j = 0; j < i; ++j) loaded(j, i) = loaded(i, j);
  return loaded;
}

inline Dense transpose(const Dense& a) {
  Dense t(a.n);
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.n; ++j) t(i, j) = a(j, i);
  return t;
}

inline Dense operator*(const Dense& a, const Dense& b) {
  Dense c(a.n);
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t k = 0; k < a.n; ++k)
      for (std::int64_t j = 0; j < a.n; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

inline Dense symmetric_part(const Dense& a) {
  Dense s(a.n);
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.n; ++j) s(i, j) = 0.5 * a(i, j) + 0.5 * a(j, i);
  return s;
}

/// Stores the symmetric part, so that the result is symmetric to the last bit.
inline void store_symmetric(const Dense& a, Matrices<double> matrices, std::int64_t b) {
  const Dense s = symmetric_part(a);
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.n; ++j) matrices[b][i * matrices.row_stride + j] = s(i, j);
}

inline double largest_magnitude(std::int64_t n, const double* values,
                                double floor = -std::numeric_limits<double>::infinity()) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::abs(std::max(values[i], floor)));
  return largest;
}

}  // namespace keel::reference
