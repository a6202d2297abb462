// The solver's accuracy, against LAPACK on the same matrices and against the float64 reference.

#include <gtest/gtest.h>

#ifdef KEEL_HAS_LAPACKE
#include <lapacke.h>
#endif

#include "support/eigen_quality.h"
#include "support/hermitian.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class EighAccuracy : public ::testing::Test {};
using RealAndComplex = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(EighAccuracy, RealAndComplex);

template <typename T>
using InDouble = std::conditional_t<kIsComplex<T>, std::complex<double>, double>;

/// The matrix, or a complex one with its eigenvalues.
template <typename T>
Batch<T> of_type(const Batch<double>& m, bool by_phases = false) {
  if constexpr (kIsComplex<T>)
    return made_complex<T>(m, by_phases, 9);
  else
    return as<T>(m);
}

#ifdef KEEL_HAS_LAPACKE
template <typename T>
EigenQuality lapack_quality(const Batch<T>& m) {
  const auto n = lapack_int(m.n);
  std::vector<T> vectors = m.data;
  std::vector<RealOf<T>> values(std::size_t(m.n));
  if constexpr (kIsComplex<T> && sizeof(T) == 8) {
    auto* const a = reinterpret_cast<lapack_complex_float*>(vectors.data());
    EXPECT_EQ(LAPACKE_cheevd(LAPACK_ROW_MAJOR, 'V', 'L', n, a, n, values.data()), 0);
  } else if constexpr (kIsComplex<T>) {
    auto* const a = reinterpret_cast<lapack_complex_double*>(vectors.data());
    EXPECT_EQ(LAPACKE_zheevd(LAPACK_ROW_MAJOR, 'V', 'L', n, a, n, values.data()), 0);
  } else if constexpr (sizeof(T) == 4) {
    EXPECT_EQ(LAPACKE_ssyevd(LAPACK_ROW_MAJOR, 'V', 'L', n, vectors.data(), n, values.data()), 0);
  } else {
    EXPECT_EQ(LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', n, vectors.data(), n, values.data()), 0);
  }
  return eigen_quality(m.n, m.matrix(0), values.data(), vectors.data());
}
#endif

/// A batch of copies takes the solver's batched path, one matrix its single path.
template <typename T>
void expect_as_good_as_lapack(const std::string& name, const Batch<T>& m) {
#ifdef KEEL_HAS_LAPACKE
  const EigenQuality lapack = lapack_quality(m);
  for (const std::int64_t batch : {1, 17}) {
    if (batch > 1 && m.n > 128) continue;
    SCOPED_TRACE(name + ", n = " + std::to_string(m.n) + ", batch = " + std::to_string(batch));
    Batch<T> copies(batch, m.n);
    for (std::int64_t b = 0; b < batch; ++b) copies.set(b, m.matrix(0));
    const Solved<T> s = solve(copies);
    for (const std::int64_t b : {std::int64_t(0), batch - 1}) {
      // The fallback would also be right, but a thousand times slower.
      EXPECT_EQ(s.status[std::size_t(b)], EighStatus::converged);
      const EigenQuality ours =
          eigen_quality(m.n, m.matrix(0), s.values.data() + b * m.n, s.vectors.matrix(b));
      EXPECT_LE(ours.residual, eigh_bound<RealOf<T>>(lapack.residual));
      EXPECT_LE(ours.orthogonality, eigh_bound<RealOf<T>>(lapack.orthogonality));
    }
  }
#else
  (void)name, (void)m;
#endif
}

TYPED_TEST(EighAccuracy, AsGoodAsLapackOnTheZoo) {
#ifndef KEEL_HAS_LAPACKE
  GTEST_SKIP() << "built without LAPACKE";
#endif
  for (const std::int64_t n : {2, 3, 5, 8, 16, 17, 32, 33, 64, 150})
    for (const auto& [name, m] : zoo_of<TypeParam>(n)) {
      // There a unit in the last place is a visible part of the value. See ScalesFreely.
      if (name != "denormal") expect_as_good_as_lapack(name, m);
    }
}

TYPED_TEST(EighAccuracy, AsGoodAsLapackOnLargeOnes) {
#ifndef KEEL_HAS_LAPACKE
  GTEST_SKIP() << "built without LAPACKE";
#endif
  for (const std::int64_t n : {65, 127, 128, 129, 193, 256}) {
    expect_as_good_as_lapack("covariance", of_type<TypeParam>(wishart(n, 2 * n, 3)));
    expect_as_good_as_lapack("rank deficient", of_type<TypeParam>(wishart(n, n / 8, 4)));
  }
}

TEST(EighAccuracyFloat, LowRankImages) {
  // 784 pixels, 20 samples: other float32 divide-and-conquer solvers have failed on this input.
  const Batch<float> m = as<float>(wishart(784, 20, 6));
  const Solved<float> s = solve(m, threads());
  EXPECT_EQ(s.status[0], EighStatus::converged);
  const EigenQuality quality =
      eigen_quality(784, m.matrix(0), s.values.data(), s.vectors.matrix(0));
  EXPECT_LE(quality.residual, rounding<float>(20, 1));
  EXPECT_LE(quality.orthogonality, rounding<float>(20, 1));
  for (std::size_t i = 20; i < 784; ++i)
    EXPECT_NEAR(s.values[i], 0, rounding<float>(20, s.values[0]));
}

TYPED_TEST(EighAccuracy, ValuesOfTheReference) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    const Batch<TypeParam> m = random_hermitian<TypeParam>(1, n, std::uint64_t(n));
    const auto truth = solve_by_reference(as<InDouble<TypeParam>>(m));
    Batch<TypeParam> copies(5, n);
    for (std::int64_t b = 0; b < 5; ++b) copies.set(b, m.matrix(0));
    for (const Solved<TypeParam>& s : {solve(m), solve(copies)})
      for (std::size_t i = 0; i < std::size_t(n); ++i)
        EXPECT_NEAR(s.values[i], truth.values[i],
                    rounding<RealOf<TypeParam>>(
                        4, std::abs(truth.values[0]) + std::abs(truth.values.back())))
            << "n = " << n;
  }
}

TYPED_TEST(EighAccuracy, SmallPartsKeepTheirOwnAccuracy) {
  using T = TypeParam;
  const double least = std::numeric_limits<RealOf<T>>::min();
  for (const std::int64_t n : {2, 5, 16, 70})
    for (const double factor : {1e-8, 1e-17, least * 1e6}) {
      SCOPED_TRACE(::testing::Message() << "n = " << n << ", factor = " << factor);
      const Batch<double> block =
          as<double>(as<RealOf<T>>(with_spectrum(spectrum(n, [](double i) { return 1 + i; }), 3)));
      const Batch<T> m = of_type<T>(two_sizes(block, factor), true);
      const Solved<double> large = solve_by_reference(block);
      Batch<T> copies(20, 2 * n);
      for (std::int64_t b = 0; b < 20; ++b) copies.set(b, m.matrix(0));
      for (const Solved<T>& s : {solve(m), solve(copies)}) {
        EXPECT_EQ(s.status[0], EighStatus::converged);
        for (std::int64_t i = 0; i < n; ++i) {
          const double truth = large.values[std::size_t(i)], size = large.values[0];
          EXPECT_NEAR(s.values[std::size_t(i)], truth, rounding<RealOf<T>>(4, size));
          EXPECT_NEAR(s.values[std::size_t(n + i)], factor * truth,
                      rounding<RealOf<T>>(4, factor * size));
          for (std::int64_t r = 0; r < n; ++r) {  // a vector lives in its part alone
            EXPECT_EQ(s.vectors(0, 2 * r + 1, i), T(0));
            EXPECT_EQ(s.vectors(0, 2 * r, n + i), T(0));
          }
        }
      }
      if (kIsComplex<T>) continue;  // the phases' rounding is not the reference's
      const auto reference = solve_by_reference(as<InDouble<T>>(m));
      for (std::int64_t i = 0; i < n; ++i)
        EXPECT_NEAR(reference.values[std::size_t(n + i)], factor * large.values[std::size_t(i)],
                    rounding<RealOf<T>>(1, factor * large.values[0]));
    }
}

TYPED_TEST(EighAccuracy, KnownSpectraAreFound) {
  for (const std::int64_t n : {3, 16, 40}) {
    const std::vector<double> values = spectrum(n, [](double i) { return i < 2 ? 5.0 : 1.0; });
    const Solved<TypeParam> s = solve(of_type<TypeParam>(with_spectrum(values, 8)));
    for (std::size_t i = 0; i < std::size_t(n); ++i)
      EXPECT_NEAR(s.values[i], values[i], rounding<RealOf<TypeParam>>(n, 5));
  }
}

}  // namespace
}  // namespace keel::testing
