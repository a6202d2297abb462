#include "keel/eigh.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <vector>

#include "formulas/order.h"
#include "not_a_number.h"
#include "shape.h"

namespace keel::reference {

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr int kMaxSweeps = 40;           // seven to ten suffice in practice
constexpr double kNegligible = 0x1p-60;  // of the diagonal entries in its row and column

double conjugate(double x) { return x; }
std::complex<double> conjugate(std::complex<double> x) { return std::conj(x); }

double scaled(double x, int exponent) { return std::ldexp(x, exponent); }
std::complex<double> scaled(std::complex<double> x, int exponent) {
  return {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
}

/// The matrix being diagonalised, and the eigenvectors as rows. E is double or complex.
template <typename E>
struct Jacobi {
  std::int64_t n;
  std::vector<E> a, u;

  E& at(std::int64_t i, std::int64_t j) { return a[std::size_t(i * n + j)]; }

  /// Rotates in the plane (p, q) so that a_pq becomes zero.
  void rotate(std::int64_t p, std::int64_t q) {
    const double size = std::abs(at(p, q));
    const E phase = at(p, q) / size;
    const double theta = (std::real(at(q, q)) - std::real(at(p, p))) / (2 * size);
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c, half = s / (1 + c);
    // The old value plus a correction that is as small as the angle, so that small rotations make
    // small rounding errors. Rows of the matrix turn by the phase, and vectors, as rows, by its
    // conjugate.
    const auto turn = [=](E& x, E& y, E by) {
      const E old = x;
      x -= s * (by * y + half * x);
      y += s * (conjugate(by) * old - half * y);
    };
    at(p, p) -= t * size;
    at(q, q) += t * size;
    at(p, q) = at(q, p) = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      if (k == p || k == q) continue;
      turn(at(p, k), at(q, k), phase);
      at(k, p) = conjugate(at(p, k));
      at(k, q) = conjugate(at(q, k));
    }
    for (std::int64_t k = 0; k < n; ++k)
      turn(u[std::size_t(p * n + k)], u[std::size_t(q * n + k)], conjugate(phase));
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

/// Of the lower triangle, by real and imaginary parts. NaN if one is not finite.
template <typename E>
double largest_entry(std::int64_t n, const E* matrix, std::int64_t row_stride) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const E x = matrix[i * row_stride + j];
      for (const double part : {std::real(x), i == j ? 0 : std::imag(x)}) {
        if (!std::isfinite(part)) return kNotANumber;
        largest = std::max(largest, std::abs(part));
      }
    }
  return largest;
}

template <typename E>
EighStatus eigh_one(std::int64_t n, const E* matrix, std::int64_t row_stride, double* values,
                    E* vectors, std::int64_t vector_stride, EighOrder wanted) {
  const double largest = largest_entry(n, matrix, row_stride);
  if (std::isnan(largest)) {
    std::fill(values, values + n, kNotANumber);
    for (std::int64_t i = 0; i < n; ++i)
      std::fill(vectors + i * vector_stride, vectors + i * vector_stride + n, not_a_number<E>());
    return EighStatus::not_finite;
  }

  int exponent = 0;
  std::frexp(largest, &exponent);
  Jacobi<E> jacobi{n, std::vector<E>(std::size_t(n * n)), std::vector<E>(std::size_t(n * n))};
  for (std::int64_t i = 0; i < n; ++i) {
    jacobi.u[std::size_t(i * n + i)] = 1;
    for (std::int64_t j = 0; j < i; ++j) {
      jacobi.at(i, j) = scaled(matrix[i * row_stride + j], -exponent);
      jacobi.at(j, i) = conjugate(jacobi.at(i, j));
    }
    jacobi.at(i, i) = std::ldexp(std::real(matrix[i * row_stride + i]), -exponent);
  }
  for (int sweep = 0; sweep < kMaxSweeps && jacobi.sweep(); ++sweep) {
  }

  std::vector<std::int64_t> order(std::size_t(n), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return std::real(jacobi.at(i, i)) > std::real(jacobi.at(j, j));
  });
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = order[std::size_t(place_in(wanted, n, i))];
    values[i] = std::ldexp(std::real(jacobi.at(from, from)), exponent);
    const E* u = &jacobi.u[std::size_t(from * n)];
    const E* peak = std::max_element(u, u + n, [](E x, E y) { return std::abs(x) < std::abs(y); });
    const E phase = conjugate(*peak) / std::abs(*peak);
    for (std::int64_t k = 0; k < n; ++k)
      vectors[k * vector_stride + i] = u + k == peak ? E(std::abs(*peak)) : phase * u[k];
  }
  return EighStatus::converged;
}

template <typename E>
void eigh_each(Matrices<const E> matrices, double* values, Matrices<E> vectors, EighOrder order,
               EighStatus* status) {
  check_eigh("keel::reference::eigh", matrices, values, vectors);
  for (std::int64_t b = 0; b < matrices.batch; ++b) {
    const EighStatus result =
        eigh_one(matrices.n, matrices[b], matrices.row_stride, values + b * matrices.n, vectors[b],
                 vectors.row_stride, order);
    if (status) status[b] = result;
  }
}

}  // namespace

void eigh(Matrices<const double> matrices, double* values, Matrices<double> vectors,
          EighOrder order, EighStatus* status) {
  eigh_each(matrices, values, vectors, order, status);
}
void eigh(Matrices<const std::complex<double>> matrices, double* values,
          Matrices<std::complex<double>> vectors, EighOrder order, EighStatus* status) {
  eigh_each(matrices, values, vectors, order, status);
}

}  // namespace keel::reference
