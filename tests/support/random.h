#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "batch.h"
#include "fast.h"

namespace keel::testing {

/// Seeded and the same on every platform, unlike the standard's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return (double(engine_() >> 11) + 0.5) * 0x1p-53; }
  double normal() {
    const double first = uniform(), second = uniform();  // separate, so that the order is fixed
    return std::sqrt(-2 * std::log(first)) * std::cos(6.283185307179586 * second);
  }
  std::vector<double> normals(std::int64_t count) {
    std::vector<double> drawn(static_cast<std::size_t>(count));
    for (double& x : drawn) x = normal();
    return drawn;
  }

 private:
  std::mt19937_64 engine_;
};

inline Batch<double> random_matrices(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  Batch<double> drawn(batch, n);
  drawn.data = Random(seed).normals(batch * n * n);
  return drawn;
}

inline Batch<double> random_symmetric(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  Batch<double> drawn = random_matrices(batch, n, seed);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) drawn(b, j, i) = drawn(b, i, j);
  return drawn;
}

/// Makes the rows of an n x n matrix orthonormal by Gram-Schmidt, twice because once is not accurate enough.
KEEL_FAST inline void orthonormalise(std::int64_t n, double* q) {
  for (std::int64_t row = 0; row < n; ++row) {
    double* const x = q + row * n;
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t other = 0; other < row; ++other) {
        const double* const y = q + other * n;
        double dot = 0;
        for (std::int64_t k = 0; k < n; ++k) dot += x[k] * y[k];
        for (std::int64_t k = 0; k < n; ++k) x[k] -= dot * y[k];
      }
    double square = 0;
    for (std::int64_t k = 0; k < n; ++k) square += x[k] * x[k];
    const double length = std::sqrt(square);
    for (std::int64_t k = 0; k < n; ++k) x[k] /= length;
  }
}

inline Batch<double> random_orthogonal(std::int64_t n, std::uint64_t seed) {
  Batch<double> q = random_matrices(1, n, seed);
  orthonormalise(n, q.matrix(0));
  return q;
}

/// m += Q diag(values) Q^T in the lower triangle; each row of `q` is an eigenvector.
KEEL_FAST inline void add_spectrum(std::int64_t n, const double* values, const double* q,
                                   double* m) {
  for (std::int64_t k = 0; k < n; ++k) {
    if (values[k] == 0) continue;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) m[i * n + j] += q[k * n + i] * q[k * n + j] * values[k];
  }
}

/// Q diag(values) Q^T, bitwise symmetric.
inline Batch<double> with_spectrum(const std::vector<double>& values, std::uint64_t seed) {
  const std::int64_t n = std::int64_t(values.size());
  const Batch<double> q = random_orthogonal(n, seed);
  Batch<double> m(1, n);
  add_spectrum(n, values.data(), q.matrix(0), m.matrix(0));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) m(0, j, i) = m(0, i, j);
  return m;
}

/// m += x x^T / samples.
KEEL_FAST inline void add_sample(std::int64_t n, const double* x, double samples, double* m) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) m[i * n + j] += x[i] * x[j] / samples;
}

/// The covariance of `samples` draws of n independent normals.
inline Batch<double> wishart(std::int64_t n, std::int64_t samples, std::uint64_t seed) {
  Random random(seed);
  Batch<double> m(1, n);
  for (std::int64_t s = 0; s < samples; ++s)
    add_sample(n, random.normals(n).data(), double(samples), m.matrix(0));
  return m;
}

}  // namespace keel::testing
