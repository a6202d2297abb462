#pragma once

// Matrices for eigh of any type: symmetric ones of real numbers, Hermitian ones of complex numbers.

#include <complex>
#include <set>

#include "not_a_number.h"
#include "spectrum_zoo.h"

namespace keel::testing {

/// Whether a number is NaN, a complex one in both parts.
template <typename T>
bool is_nan(T x) {
  return std::isnan(std::real(x)) && (!kIsComplex<T> || std::isnan(std::imag(x)));
}

/// The Hermitian matrix whose lower triangle is given.
template <typename T>
void mirror(Batch<std::complex<T>>& m) {
  for (std::int64_t b = 0; b < m.batch; ++b)
    for (std::int64_t i = 0; i < m.n; ++i) {
      m(b, i, i) = m(b, i, i).real();
      for (std::int64_t j = 0; j < i; ++j) m(b, j, i) = std::conj(m(b, i, j));
    }
}

template <typename T>
Batch<T> random_hermitian(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  const Batch<double> re = random_symmetric(batch, n, seed);
  Batch<T> m = as<T>(re);
  if constexpr (kIsComplex<T>) {
    const Batch<double> im = random_matrices(batch, n, seed + 1000);
    for (std::size_t k = 0; k < m.data.size(); ++k)
      m.data[k] = {RealOf<T>(re.data[k]), RealOf<T>(im.data[k])};
    mirror(m);
  }
  return m;
}

/// A matrix with the eigenvalues of the real one: D M D^H with random phases D, or R M R for a random
/// reflection R.
template <typename T>
Batch<T> made_complex(const Batch<double>& m, bool by_phases, std::uint64_t seed) {
  using C = std::complex<double>;
  const std::int64_t n = m.n;
  const auto size = std::size_t(n);
  Random random(seed);
  std::vector<C> x(size);
  double square = 0;
  for (C& entry : x) {
    entry = {random.normal(), random.normal()};
    square += std::norm(entry);
  }
  Batch<C> full(1, n);
  if (by_phases) {
    for (C& entry : x) entry /= std::abs(entry);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        full(0, i, j) = m(0, i, j) * (x[std::size_t(i)] * std::conj(x[std::size_t(j)]));
  } else {
    // M - x w^H - w x^H, where w = p - (x^H p) x / square and p = 2 M x / square.
    std::vector<C> p(size);
    C along = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j)
        p[std::size_t(i)] += m(0, i, j) * (2 / square) * x[std::size_t(j)];
      along += std::conj(x[std::size_t(i)]) * p[std::size_t(i)];
    }
    for (std::size_t i = 0; i < size; ++i) p[i] -= along / square * x[i];
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        full(0, i, j) = m(0, i, j) - x[std::size_t(i)] * std::conj(p[std::size_t(j)]) -
                        p[std::size_t(i)] * std::conj(x[std::size_t(j)]);
  }
  Batch<T> made = as<T>(full);
  mirror(made);
  return made;
}

/// The zoo's specimens. Complex ones keep zeros where a specimen has its name from them.
template <typename T>
std::vector<Specimen<T>> zoo_of(std::int64_t n) {
  if constexpr (kIsComplex<T>) {
    const std::set<std::string> sparse = {
        "equal to the last bit", "eps identity",       "zero", "block diagonal", "wilkinson",
        "diagonal, descending",  "diagonal, ascending"};
    std::vector<Specimen<T>> zoo;
    for (const auto& [name, matrix] : spectrum_zoo<RealOf<T>>(n))
      zoo.push_back({name, made_complex<T>(as<double>(matrix), sparse.count(name) > 0, 3)});
    return zoo;
  } else {
    return spectrum_zoo<T>(n);
  }
}

}  // namespace keel::testing
