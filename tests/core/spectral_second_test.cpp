// The gradient of the gradient, against the reference and finite differences, also at repeated eigenvalues.

#include <gtest/gtest.h>

#include "support/finite_differences.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
struct Second {
  Batch<T> dL2_dresult, dL2_dmatrix;
};

template <typename T>
Second<T> second(const SpectralFunction& f, const Solved<T>& s, const Batch<T>& c,
                 const Batch<T>& h, const Executor& executor = serial()) {
  Second<T> out{Batch<T>(s.vectors.batch, s.vectors.n), Batch<T>(s.vectors.batch, s.vectors.n)};
  cpu::spectral_second_backward<T>(f, s.values.data(), s.vectors.view(), c.view(), h.view(),
                                   out.dL2_dresult.view(), out.dL2_dmatrix.view(), executor);
  return out;
}

Second<double> second_by_reference(const SpectralFunction& f, const Solved<double>& s,
                                   const Batch<double>& c, const Batch<double>& h) {
  Second<double> out{Batch<double>(s.vectors.batch, s.vectors.n),
                     Batch<double>(s.vectors.batch, s.vectors.n)};
  reference::spectral_second_backward(f, s.values.data(), s.vectors.view(), c.view(), h.view(),
                                      out.dL2_dresult.view(), out.dL2_dmatrix.view());
  return out;
}

template <typename T>
class SpectralSecond : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SpectralSecond, Types);

TYPED_TEST(SpectralSecond, IsTheReference) {
  using T = TypeParam;
  const std::vector<std::vector<double>> spectra = {
      {3, 2, 2, 2, 1.001, 1, 0.5}, {5, 4, 2.5, 1.5, 0.75}, {1, 1, 1}, {0.5}, {4, 4 - 1e-5, 0.01}};
  for (const auto& values : spectra) {
    const Solved<T> s = solve(as<T>(with_spectrum(values, 1)));
    const std::int64_t n = s.vectors.n;
    const Batch<T> c = as<T>(random_matrices(1, n, 2)), h = as<T>(random_matrices(1, n, 3));
    for (const SpectralFunction& f : kFunctions) {
      const Second<T> ours = second(f, s, c, h);
      const Second<double> truth =
          second_by_reference(f, as<double>(s), as<double>(c), as<double>(h));
      EXPECT_LE(largest_difference(ours.dL2_dmatrix, truth.dL2_dmatrix),
                rounding<T>(n, 8 * (double(n) + largest_entry(truth.dL2_dmatrix))))
          << to_string(f) << ", n = " << n;
      EXPECT_LE(largest_difference(ours.dL2_dresult, truth.dL2_dresult),
                rounding<T>(n, 4 * (double(n) + largest_entry(truth.dL2_dresult))))
          << to_string(f) << ", n = " << n;
      EXPECT_TRUE(exactly_symmetric(ours.dL2_dmatrix));
    }
  }
}

TEST(SpectralSecondExact, AgreesWithDifferencesOfTheGradient) {
  for (const auto& values :
       {std::vector<double>{3, 2, 2, 2, 1, 1, 0.5}, {4, 2.5, 1.5, 0.75}, {1, 1, 1}}) {
    const Batch<double> m = with_spectrum(values, 4);
    const std::int64_t n = m.n;
    const Solved<double> s = solve(m);
    const Batch<double> c = random_matrices(1, n, 5), h = random_matrices(1, n, 6);
    for (const SpectralFunction& f : kFunctions) {
      const Second<double> gradient = second(f, s, c, h);
      // L2 = <h, dL_dmatrix(c, M)>
      const auto of_matrix = [&](const Batch<double>& x) {
        return inner(h, spectral_backward_by_reference(f, Exact{}, solve_by_reference(x),
                                                       full_rank(1, n), c));
      };
      const auto of_result = [&](const Batch<double>& x) {
        return inner(h, spectral_backward_by_reference(f, Exact{}, s, full_rank(1, n), x));
      };
      for (const std::uint64_t seed : {7, 8}) {
        const Batch<double> direction = random_symmetric(1, n, seed);
        EXPECT_NEAR(inner(gradient.dL2_dmatrix, direction),
                    directional_derivative(of_matrix, m, direction, 5e-4), by_differences(200))
            << to_string(f);
        EXPECT_NEAR(inner(gradient.dL2_dresult, direction),
                    directional_derivative(of_result, c, direction, 5e-4), by_differences(200))
            << to_string(f);
      }
    }
  }
}

TYPED_TEST(SpectralSecond, EitherOutputMayBeNull) {
  using T = TypeParam;
  const Solved<T> s = solve(as<T>(with_spectrum({3, 2, 2, 1}, 9)));
  const Batch<T> c = as<T>(random_matrices(1, 4, 10)), h = as<T>(random_matrices(1, 4, 11));
  const SpectralFunction f{Kind::log};
  const Second<T> both = second(f, s, c, h);
  Batch<T> out(1, 4);
  cpu::spectral_second_backward<T>(f, s.values.data(), s.vectors.view(), c.view(), h.view(),
                                   out.view(), {});
  EXPECT_TRUE(bitwise_equal(out.data, both.dL2_dresult.data));
  cpu::spectral_second_backward<T>(f, s.values.data(), s.vectors.view(), c.view(), h.view(), {},
                                   out.view());
  EXPECT_TRUE(bitwise_equal(out.data, both.dL2_dmatrix.data));
}

TYPED_TEST(SpectralSecond, TheExecutorAndBadBatchMatesDoNotMatter) {
  using T = TypeParam;
  const std::int64_t n = 4, batch = 70;
  Batch<double> m(batch, n);
  for (std::int64_t b = 0; b < batch; ++b)
    m.set(b, with_spectrum({4, 3, 3, 1}, std::uint64_t(b)).matrix(0));
  Solved<T> s = solve(as<T>(m));
  const Batch<T> c = as<T>(random_matrices(batch, n, 12)), h = as<T>(random_matrices(batch, n, 13));
  const SpectralFunction f{Kind::inv_sqrt};
  const Second<T> before = second(f, s, c, h);
  EXPECT_TRUE(
      bitwise_equal(before.dL2_dmatrix.data, second(f, s, c, h, threads(3)).dL2_dmatrix.data));
  s.values[std::size_t(5 * n + 3)] = T(-1);
  const Second<T> after = second(f, s, c, h);
  for (std::int64_t b = 0; b < batch; ++b)
    EXPECT_EQ(bitwise_equal(before.dL2_dmatrix.matrix(b), after.dL2_dmatrix.matrix(b), n * n),
              b != 5);
  EXPECT_TRUE(std::isnan(after.dL2_dmatrix(5, 0, 0)) && std::isnan(after.dL2_dresult(5, 0, 0)));
}

}  // namespace
}  // namespace keel::testing
