// The contract in keel/gradient_rule.h, on the GPU. Needs a GPU.

#include "keel/gradient_rule.h"

#include <gtest/gtest.h>

#include "cuda_backend.h"
#include "support/gradient_rule_contract.h"

namespace keel::testing {
namespace {

template <typename T>
class CudaGradientRule : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaGradientRule, Types);

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
        const Batch<T> ours = backward_by<Cuda, T>(rule, s, nullptr, &g);
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
    const Batch<T> ours = backward_by<Cuda>(rule, s, &h, &g), twin = backward(rule, s, &h, &g);
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
      const Batch<T> ours = backward_by<Cuda>(rule, s, &h, &g), twin = backward(rule, s, &h, &g);
      EXPECT_LE(largest_difference(ours, as<double>(twin)),
                rounding<T>(n, 8 * largest_entry(twin)));
      // The last matrix alone gives the same bits.
      Solved<T> alone{{s.values.end() - n, s.values.end()}, Batch<T>(1, n), {}};
      alone.vectors.set(0, s.vectors.matrix(batch - 1));
      Batch<T> alone_g(1, n);
      alone_g.set(0, g.matrix(batch - 1));
      const std::vector<T> alone_h(h.end() - n, h.end());
      EXPECT_TRUE(bitwise_equal(backward_by<Cuda>(rule, alone, &alone_h, &alone_g).matrix(0),
                                ours.matrix(batch - 1), n * n));
    }
}

TYPED_TEST(CudaGradientRule, CanBeCapturedInAGraph) {
  using T = TypeParam;
  for (const std::int64_t n : {24, 70}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 11)));
    const Batch<T> g = as<T>(random_matrices(3, n, 12));
    OnDevice<T> values(s.values);
    BatchOnDevice<T> vectors(s.vectors), gradient(g), out(Batch<T>(3, n, T(-77)));
    run_as_graph([&](const Stream& stream) {
      cuda::eigh_backward<T>(Taylor{}, values.data(), vectors.view(), nullptr, gradient.view(),
                             out.view(), stream);
    });
    EXPECT_TRUE(
        bitwise_equal(backward_by<Cuda, T>(Taylor{}, s, nullptr, &g).data, out.back().data));
  }
}

using GradientRuleOnCuda = OnFloats<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, GradientRuleContract, GradientRuleOnCuda);

}  // namespace
}  // namespace keel::testing
