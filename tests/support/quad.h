#pragma once

// Numbers of 113 bits, and symmetric matrices with known eigenvalues and eigenvectors in them. They are the truth for
// results in float32 and float64, without any eigensolver.

#include <quadmath.h>

#include <cstdint>
#include <random>
#include <vector>

namespace keel::test {

__extension__ typedef __float128 Quad;

struct QuadMatrix {
  explicit QuadMatrix(std::int64_t n) : n(n), entries(std::size_t(n * n), Quad(0)) {}
  Quad& operator()(std::int64_t i, std::int64_t j) { return entries[std::size_t(i * n + j)]; }
  const Quad& operator()(std::int64_t i, std::int64_t j) const {
    return entries[std::size_t(i * n + j)];
  }
  std::int64_t n;
  std::vector<Quad> entries;
};

inline double frobenius(const QuadMatrix& a) {
  Quad sum = 0;
  for (const Quad& x : a.entries) sum += x * x;
  return double(sqrtq(sum));
}

/// An orthogonal matrix V as a product of Householder reflections: V^T A V and V A V^T cost O(n^2).
class QuadBasis {
 public:
  QuadBasis(std::int64_t n, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    for (int k = 0; k < 3; ++k) {
      std::vector<Quad> u(static_cast<std::size_t>(n));
      Quad square = 0;
      for (Quad& x : u) {
        x = normal(random);
        square += x * x;
      }
      for (Quad& x : u) x /= sqrtq(square);
      reflections_.push_back(u);
    }
  }

  /// V A V^T for symmetric A.
  QuadMatrix out_of(QuadMatrix a) const {
    for (auto u = reflections_.rbegin(); u != reflections_.rend(); ++u) reflect(a, *u);
    return a;
  }
  /// V^T A V for symmetric A.
  QuadMatrix into(QuadMatrix a) const {
    for (const auto& u : reflections_) reflect(a, u);
    return a;
  }

 private:
  /// (I - 2 u u^T) A (I - 2 u u^T)
  static void reflect(QuadMatrix& a, const std::vector<Quad>& u) {
    std::vector<Quad> w(u.size(), Quad(0));
    Quad both = 0;
    for (std::int64_t i = 0; i < a.n; ++i) {
      for (std::int64_t j = 0; j < a.n; ++j) w[i] += a(i, j) * u[j];
      both += u[i] * w[i];
    }
    // u w^T + w u^T - 2 (u . w) u u^T = u y^T + y u^T
    std::vector<Quad> y = w;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] -= both * u[i];
    for (std::int64_t i = 0; i < a.n; ++i)
      for (std::int64_t j = 0; j < a.n; ++j) a(i, j) -= 2 * (u[i] * y[j] + y[i] * u[j]);
  }

  std::vector<std::vector<Quad>> reflections_;
};

inline QuadMatrix diagonal(const std::vector<Quad>& values) {
  QuadMatrix result(static_cast<std::int64_t>(values.size()));
  for (std::int64_t i = 0; i < result.n; ++i) result(i, i) = values[std::size_t(i)];
  return result;
}

}  // namespace keel::test
