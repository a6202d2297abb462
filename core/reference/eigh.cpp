#include "keel/eigh.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "formulas/order.h"
#include "shape.h"

namespace keel::reference {

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr int kMaxSweeps = 40;           // seven to ten suffice in practice
constexpr double kNegligible = 0x1p-60;  // of the diagonal entries in its row and column

/// The matrix being diagonalised, and the eigenvectors as rows.
struct Jacobi {
  std::int64_t n;
  std::vector<double> a, u;

  double& at(std::int64_t i, std::int64_t j) { return a[std::size_t(i * n + j)]; }

  /// Rotates in the plane (p, q) so that a_pq becomes zero.
  void rotate(std::int64_t p, std::int64_t q) {
    const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c, half = s / (1 + c);
    // The old value plus a correction that is as small as the angle, so that small rotations make
    // small rounding errors.
    const auto turn = [=](double& x, double& y) {
      const double old = x;
      x -= s * (y + half * x);
      y += s * (old - half * y);
    };
    at(p, p) -= t * at(p, q);
    at(q, q) += t * at(p, q);
    at(p, q) = at(q, p) = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      if (k == p || k == q) continue;
      turn(at(p, k), at(q, k));
      at(k, p) = at(p, k);
      at(k, q) = at(q, k);
    }
    for (std::int64_t k = 0; k < n; ++k) turn(u[std::size_t(p * n + k)], u[std::size_t(q * n + k)]);
  }

  bool sweep() {
    bool turned = false;
    for (std::int64_t p = 0; p < n; ++p)
      for (std::int64_t q = p + 1; q < n; ++q)
        if (std::abs(at(p, q)) > kNegligible * (std::abs(at(p, p)) + std::abs(at(q, q)))) {
          rotate(p, q);
          turned = true;
        }
    return turned;
  }
};

double largest_entry(std::int64_t n, const double* matrix, std::int64_t row_stride) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const double x = matrix[i * row_stride + j];
      if (!std::isfinite(x)) return kNotANumber;
      largest = std::max(largest, std::abs(x));
    }
  return largest;
}

EighStatus eigh_one(std::int64_t n, const double* matrix, std::int64_t row_stride, double* values,
                    double* vectors, std::int64_t vector_stride, EighOrder wanted) {
  const double largest = largest_entry(n, matrix, row_stride);
  if (std::isnan(largest)) {
    std::fill(values, values + n, kNotANumber);
    for (std::int64_t i = 0; i < n; ++i)
      std::fill(vectors + i * vector_stride, vectors + i * vector_stride + n, kNotANumber);
    return EighStatus::not_finite;
  }

  int exponent = 0;
  std::frexp(largest, &exponent);
  Jacobi jacobi{n, std::vector<double>(std::size_t(n * n)),
                std::vector<double>(std::size_t(n * n))};
  for (std::int64_t i = 0; i < n; ++i) {
    jacobi.u[std::size_t(i * n + i)] = 1;
    for (std::int64_t j = 0; j <= i; ++j)
      jacobi.at(i, j) = jacobi.at(j, i) = std::ldexp(matrix[i * row_stride + j], -exponent);
  }
  for (int sweep = 0; sweep < kMaxSweeps && jacobi.sweep(); ++sweep) {
  }

  std::vector<std::int64_t> order(std::size_t(n), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return jacobi.at(i, i) > jacobi.at(j, j);
  });
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = order[std::size_t(place_in(wanted, n, i))];
    values[i] = std::ldexp(jacobi.at(from, from), exponent);
    const double* u = &jacobi.u[std::size_t(from * n)];
    const double* peak =
        std::max_element(u, u + n, [](double x, double y) { return std::abs(x) < std::abs(y); });
    const double sign = *peak < 0 ? -1 : 1;
    for (std::int64_t k = 0; k < n; ++k) vectors[k * vector_stride + i] = sign * u[k];
  }
  return EighStatus::converged;
}

}  // namespace

void eigh(Matrices<const double> matrices, double* values, Matrices<double> vectors,
          EighOrder order, EighStatus* status) {
  check_eigh("keel::reference::eigh", matrices, values, vectors);
  for (std::int64_t b = 0; b < matrices.batch; ++b) {
    const EighStatus result =
        eigh_one(matrices.n, matrices[b], matrices.row_stride, values + b * matrices.n, vectors[b],
                 vectors.row_stride, order);
    if (status) status[b] = result;
  }
}

}  // namespace keel::reference
