#pragma once

// Spectra that break eigensolvers and their gradients.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "random.h"

namespace keel::testing {

template <typename T>
struct Specimen {
  std::string name;
  Batch<T> matrix;  ///< one
};

/// values[i] = at(i) for i = 0 .. n-1.
inline std::vector<double> spectrum(std::int64_t n, const std::function<double(double)>& at) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(at(double(i)));
  return values;
}

inline Batch<double> diagonal(const std::vector<double>& values) {
  Batch<double> m(1, std::int64_t(values.size()));
  for (std::int64_t i = 0; i < m.n; ++i) m(0, i, i) = values[std::size_t(i)];
  return m;
}

/// diag(B, factor B), with the rows of both interleaved.
inline Batch<double> two_sizes(const Batch<double>& block, double factor) {
  Batch<double> m(1, 2 * block.n);
  for (std::int64_t i = 0; i < block.n; ++i)
    for (std::int64_t j = 0; j < block.n; ++j) {
      m(0, 2 * i, 2 * j) = block(0, i, j);
      m(0, 2 * i + 1, 2 * j + 1) = factor * block(0, i, j);
    }
  return m;
}

inline Batch<double> block_diagonal(std::int64_t n, std::uint64_t seed) {
  Batch<double> m = random_symmetric(1, n, seed);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      if (i / 3 != j / 3) m(0, i, j) = 0;
  return m;
}

/// Wilkinson's W+: pairs of eigenvalues agree to many digits, though no entry shows it.
inline Batch<double> wilkinson(std::int64_t n) {
  Batch<double> m(1, n);
  for (std::int64_t i = 0; i < n; ++i) {
    m(0, i, i) = std::abs(double(i) - double(n - 1) / 2);
    if (i > 0) m(0, i, i - 1) = m(0, i - 1, i) = 1;
  }
  return m;
}

inline Batch<double> scaled(Batch<double> m, double factor) {
  for (double& x : m.data) x *= factor;
  return m;
}

/// Every specimen of size n >= 1.
template <typename T>
std::vector<Specimen<T>> spectrum_zoo(std::int64_t n) {
  constexpr std::uint64_t seed = 1;
  using Limits = std::numeric_limits<T>;
  const double eps = Limits::epsilon();
  const auto made = [&](const std::function<double(double)>& at) {
    return with_spectrum(spectrum(n, at), seed);
  };
  const Batch<double> ordinary = made([&](double i) { return 1 + i; });
  const std::vector<std::pair<std::string, Batch<double>>> all = {
      {"distinct", ordinary},
      {"indefinite", random_symmetric(1, n, seed)},
      {"graded", made([&](double i) { return std::pow(10.0, -6 * i / double(n)); })},
      {"repeated", made([](double i) { return 1 + std::floor(i / 2); })},
      {"all but one equal", made([](double i) { return i == 0 ? 4.0 : 1.0; })},
      {"equal to the last bit", diagonal(std::vector<double>(std::size_t(n), double(T(0.7))))},
      {"last bits apart", made([&](double i) { return 1 + i * eps; })},
      {"clustered",
       made([&](double i) { return i < double(n) / 2 ? 1 + i * 1e-4 : 2 - i * 1e-4; })},
      {"plus and minus", made([](double i) { return std::fmod(i, 2) == 0 ? 1.0 : -1.0; })},
      {"rank deficient", made([&](double i) { return i < double(n) / 2 ? 1 + i : 0.0; })},
      {"clamped", made([&](double i) { return i < double(n) / 2 ? 1 + i : 1e-4; })},
      {"rank one", made([](double i) { return i == 0 ? 1.0 : 0.0; })},
      {"all ones", Batch<double>(1, n, 1.0)},
      {"zero", Batch<double>(1, n)},
      {"eps identity", diagonal(std::vector<double>(std::size_t(n), 1e-4))},
      {"denormal", scaled(ordinary, 16 * double(Limits::denorm_min()))},
      {"tiny", scaled(ordinary, 4 * double(Limits::min()))},
      {"huge", scaled(ordinary, double(Limits::max()) / (16 * double(n * n)))},
      {"block diagonal", block_diagonal(n, seed)},
      {"diagonal, descending", diagonal(spectrum(n, [&](double i) { return double(n) - i; }))},
      {"diagonal, ascending", diagonal(spectrum(n, [&](double i) { return i - 2; }))},
      {"wilkinson", wilkinson(n)},
      {"covariance", wishart(n, 4 * n, seed)},
      {"covariance of few samples", wishart(n, (n + 1) / 2, seed)},
  };
  std::vector<Specimen<T>> zoo;
  for (const auto& [name, matrix] : all) zoo.push_back({name, as<T>(matrix)});
  return zoo;
}

}  // namespace keel::testing
