// The contract in keel/gradient_rule.h, on the GPU. Needs a GPU.

#include "keel/gradient_rule.h"

#include <gtest/gtest.h>

#include "batch_on_device.h"
#include "keel/error.h"
#include "support/backward.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130};

const GradientRule kRules[] = {
    Analytic{},          PowerIteration{}, PowerIteration{.terms = 1}, Taylor{},
    Taylor{.terms = 30}, Lorentzian{},     Lorentzian{.width = 0.1},   Masked{.tolerance = 1e-3}};

template <typename T>
Batch<T> on_device(const GradientRule& rule, const Solved<T>& s, const std::vector<T>* dL_dvalues,
                   const Batch<T>* dL_dvectors, std::int64_t gap = 0, bool in_graph = false) {
  const std::int64_t batch = s.vectors.batch, n = s.vectors.n;
  OnDevice<T> values(s.values), h(dL_dvalues ? *dL_dvalues : std::vector<T>{});
  BatchOnDevice<T> vectors(s.vectors, gap), g(dL_dvectors ? *dL_dvectors : Batch<T>(), 2 * gap);
  BatchOnDevice<T> out(Batch<T>(batch, n, T(-77)), 3 * gap);
  const auto queue = [&](const Stream& stream) {
    cuda::eigh_backward<T>(rule, values.data(), vectors.view(), dL_dvalues ? h.data() : nullptr,
                           dL_dvectors ? g.view() : Matrices<T>{}, out.view(), stream);
  };
  run(in_graph, queue);
  return out.back();
}

template <typename T>
class CudaGradientRule : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaGradientRule, Types);

TYPED_TEST(CudaGradientRule, IsTheReferenceForEverySize) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    const Batch<double> m = with_spectrum(spectrum(n, [&](double i) { return 1.5 * i - 3; }), 21);
    const Solved<T> s = solve(as<T>(m));
    const Batch<T> g = as<T>(random_matrices(1, n, 22));
    const std::vector<T> h = as<T>(Random(23).normals(n));
    for (const GradientRule& rule : kRules) {
      SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n));
      const Solved<double> s64 = as<double>(s);
      const Batch<double> g64 = as<double>(g);
      const std::vector<double> h64 = as<double>(h);
      const Batch<T> ours = on_device(rule, s, &h, &g);
      const Batch<double> truth = backward_by_reference(rule, s64, &h64, &g64);
      const double magnitude = 1 + kernel_bound(rule, s64.values);
      EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 4 * magnitude));
      EXPECT_TRUE(exactly_symmetric(ours));
    }
  }
}

TYPED_TEST(CudaGradientRule, IsTheTruthOnTheZoo) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 5, 16, 33, 70}) {
    // The default tolerance is larger in float than in the reference's double.
    const GradientRule rules[] = {PowerIteration{}, Taylor{}, Lorentzian{},
                                  Masked{.tolerance = 10 * double(n) * kEps<T>}};
    for (const auto& [name, m] : spectrum_zoo<T>(n)) {
      // There 1 / eigenvalue is not finite.
      if (name == "denormal" || name == "tiny") continue;
      const Solved<T> s = solve(m);
      const Batch<T> g = as<T>(random_matrices(1, n, 71));
      const Batch<double> g64 = as<double>(g);
      for (const GradientRule& rule : rules) {
        SCOPED_TRACE(to_string(rule) + " on " + name + ", n = " + std::to_string(n));
        const Solved<double> s64 = as<double>(s);
        const Batch<T> ours = on_device<T>(rule, s, nullptr, &g);
        // The reference divides by the largest eigenvalue before it subtracts, which blurs a gap of a few roundings.
        // Only the Lorentzian rule shows this.
        const Batch<double> truth = std::holds_alternative<Lorentzian>(rule)
                                        ? as<double>(backward<T>(rule, s, nullptr, &g))
                                        : backward_by_reference(rule, s64, nullptr, &g64);
        ASSERT_TRUE(all_finite(ours));
        const double magnitude = kernel_bound(rule, s64.values);
        EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 4 * magnitude));
      }
    }
  }
}

TYPED_TEST(CudaGradientRule, IsTheCpusForLargeMatrices) {
  using T = TypeParam;
  for (const std::int64_t n : {128, 200, 256, 300}) {
    const Solved<T> s = solve(as<T>(random_symmetric(2, n, 24)));
    const Batch<T> g = as<T>(random_matrices(2, n, 25));
    const std::vector<T> h = as<T>(Random(26).normals(2 * n));
    const GradientRule rule = Lorentzian{.width = 0.1};
    const Batch<T> ours = on_device(rule, s, &h, &g), twin = backward(rule, s, &h, &g);
    EXPECT_LE(largest_difference(ours, as<double>(twin)), rounding<T>(n, 8 * largest_entry(twin)));
    EXPECT_TRUE(exactly_symmetric(ours));
  }
}

TYPED_TEST(CudaGradientRule, BatchesOfEverySize) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 4, 16, 20, 40, 70})
    for (const std::int64_t batch : {1, 7, 300, 70000}) {
      if ((batch > 7 && n > 40) || (batch > 300 && n > 2)) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
      const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 24)));
      const Batch<T> g = as<T>(random_matrices(batch, n, 25));
      const std::vector<T> h = as<T>(Random(26).normals(batch * n));
      const GradientRule rule = Lorentzian{.width = 0.1};
      const Batch<T> ours = on_device(rule, s, &h, &g), twin = backward(rule, s, &h, &g);
      EXPECT_LE(largest_difference(ours, as<double>(twin)),
                rounding<T>(n, 8 * largest_entry(twin)));
      // The last matrix alone gives the same bits.
      Solved<T> alone{{s.values.end() - n, s.values.end()}, Batch<T>(1, n), {}};
      alone.vectors.set(0, s.vectors.matrix(batch - 1));
      Batch<T> alone_g(1, n);
      alone_g.set(0, g.matrix(batch - 1));
      const std::vector<T> alone_h(h.end() - n, h.end());
      EXPECT_TRUE(bitwise_equal(on_device(rule, alone, &alone_h, &alone_g).matrix(0),
                                ours.matrix(batch - 1), n * n));
    }
}

TYPED_TEST(CudaGradientRule, EitherGradientMayBeNull) {
  using T = TypeParam;
  for (const std::int64_t n : {6, 24, 64, 66}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 24)));
    const Batch<T> g = as<T>(random_matrices(3, n, 25));
    const std::vector<T> h = as<T>(Random(26).normals(3 * n)), no_h(h.size(), T(0));
    const std::vector<double> h64 = as<double>(h);
    for (const GradientRule& rule : kRules) {
      SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n));
      EXPECT_TRUE(bitwise_equal(on_device<T>(rule, s, nullptr, &g).data,
                                on_device<T>(rule, s, &no_h, &g).data));
      const Batch<double> truth = backward_by_reference(rule, as<double>(s), &h64, nullptr);
      EXPECT_LE(largest_difference(on_device<T>(rule, s, &h, nullptr), truth), rounding<T>(n, 4));
      EXPECT_EQ(largest_entry(on_device<T>(rule, s, nullptr, nullptr)), 0);
    }
  }
}

TYPED_TEST(CudaGradientRule, NaNStaysInItsMatrix) {
  using T = TypeParam;
  for (const std::int64_t n : {3, 16, 17, 64, 70}) {
    const std::int64_t batch = 7;
    const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 76)));
    const Batch<T> g = as<T>(random_matrices(batch, n, 77));
    const std::vector<T> h = as<T>(Random(78).normals(batch * n));
    for (const GradientRule& rule : {GradientRule(PowerIteration{}), GradientRule(Masked{})}) {
      const Batch<T> before = on_device(rule, s, &h, &g);
      Solved<T> bad = s;
      Batch<T> bad_g = g;
      bad.values[std::size_t(2 * n)] = std::numeric_limits<T>::quiet_NaN();
      bad.vectors(3, 1, 1) = std::numeric_limits<T>::quiet_NaN();
      bad_g(4, 0, 2) = std::numeric_limits<T>::infinity();
      const Batch<T> after = on_device(rule, bad, &h, &bad_g);
      for (std::int64_t b = 0; b < batch; ++b)
        EXPECT_EQ(bitwise_equal(before.matrix(b), after.matrix(b), n * n), b < 2 || b > 4)
            << to_string(rule) << ", n = " << n << ", matrix " << b;
      for (const std::int64_t b : {3, 4}) EXPECT_FALSE(std::isfinite(after(b, 0, 0)));
    }
  }
}

TYPED_TEST(CudaGradientRule, RowStrides) {
  using T = TypeParam;
  for (const std::int64_t n : {5, 32, 64, 66}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 81)));
    const Batch<T> g = as<T>(random_matrices(3, n, 82));
    EXPECT_TRUE(bitwise_equal(on_device<T>(Taylor{}, s, nullptr, &g).data,
                              on_device<T>(Taylor{}, s, nullptr, &g, 3).data))
        << "n = " << n;
  }
}

TYPED_TEST(CudaGradientRule, CanBeCapturedInAGraph) {
  using T = TypeParam;
  for (const std::int64_t n : {24, 70}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 11)));
    const Batch<T> g = as<T>(random_matrices(3, n, 12));
    EXPECT_TRUE(bitwise_equal(on_device<T>(Taylor{}, s, nullptr, &g).data,
                              on_device<T>(Taylor{}, s, nullptr, &g, 0, true).data));
  }
}

TYPED_TEST(CudaGradientRule, EmptyShapesAndErrors) {
  using T = TypeParam;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(4, 0), {}};
  EXPECT_TRUE(on_device<T>(Masked{}, none, nullptr, &none.vectors).data.empty());
  EXPECT_TRUE(on_device<T>(Masked{}, empty, nullptr, &empty.vectors).data.empty());
  const Solved<T> s = solve(as<T>(random_symmetric(2, 3, 83)));
  const Batch<T> wrong(2, 4);
  EXPECT_THROW(on_device<T>(Masked{}, s, nullptr, &wrong), Error);
  EXPECT_THROW(on_device<T>(Taylor{.terms = 0}, s, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace keel::testing
