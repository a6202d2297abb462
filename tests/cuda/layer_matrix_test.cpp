// The contract in keel/layer_matrix.h, on the GPU. Needs a GPU.

#include "keel/layer_matrix.h"

#include <gtest/gtest.h>

#include "batch_on_device.h"
#include "keel/error.h"
#include "support/backward.h"
#include "support/layer_matrix.h"
#include "support/random.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
struct Device {
  std::int64_t gap = 0;
  bool in_graph = false;
  Mapped<T> forward(const LayerMap& map, const Batch<T>& covariance) const {
    Mapped<T> m(covariance.batch, covariance.n);
    BatchOnDevice<T> input(covariance, gap), result(m.result, 2 * gap), vectors(m.vectors, 3 * gap);
    OnDevice<T> values(m.values);
    OnDevice<std::int64_t> rank(m.rank);
    run(in_graph, [&](const Stream& stream) {
      cuda::layer_matrix<T>(map, input.view(), result.view(),
                            {values.data(), vectors.view(), rank.data()}, stream);
    });
    m.result = result.back();
    m.vectors = vectors.back();
    m.values = values.back();
    m.rank = rank.back();
    return m;
  }
  Batch<T> backward(const LayerMap& map, const SpectralRule& rule, const Batch<T>& covariance,
                    const Mapped<T>& m, const Batch<T>& dL_dlayer_matrix) const {
    BatchOnDevice<T> input(covariance, gap), vectors(m.vectors, 2 * gap),
        gradient(dL_dlayer_matrix, 3 * gap), out(m.result, gap);
    OnDevice<T> values(m.values);
    OnDevice<std::int64_t> rank(m.rank);
    run(in_graph, [&](const Stream& stream) {
      const LayerMatrixState<T> state{values.data(), vectors.view(), rank.data()};
      cuda::layer_matrix_backward<T>(map, rule, input.view(), state, gradient.view(), out.view(),
                                     stream);
    });
    return out.back();
  }
};

template <typename T>
Mapped<T> on_cpu(const LayerMap& map, const Batch<T>& covariance) {
  Mapped<T> m(covariance.batch, covariance.n);
  cpu::layer_matrix<T>(map, covariance.view(), m.result.view(), m.state());
  return m;
}

template <typename T>
class CudaLayerMatrix : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaLayerMatrix, Types);

/// The map of spread covariances.
template <typename T>
void expect_the_references(const LayerMap& map, std::int64_t n) {
  SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
  const Batch<T> covariance = as<T>(spread_covariance(n));
  const Mapped<double> truth = mapped_by_reference(map, as<double>(covariance));
  const Mapped<T> ours = Device<T>{}.forward(map, covariance);
  EXPECT_EQ(ours.rank, truth.rank);
  EXPECT_LE(largest_difference(ours.result, truth.result),
            rounding<T>(n, largest_entry(truth.result)) * amplification(truth));
}

TYPED_TEST(CudaLayerMatrix, ForwardIsTheReference) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 5, 9, 16, 17, 31, 33, 64, 65, 100})
    for (const RankPolicy& policy : kLayerPolicies)
      for (const LayerMap& map : maps(policy)) {
        expect_the_references<T>(map, n);
      }
}

TYPED_TEST(CudaLayerMatrix, QuotientsAreComputedForASmallTolerance) {
  // So small that no bound on the quotients' errors is below it, and still above these.
  using T = TypeParam;
  for (const std::int64_t n : {5, 9, 16, 17, 33, 64})
    for (const LayerMap& map : maps(Algorithm1{.rayleigh_tolerance = 16 * double(n) * kEps<T>})) {
      expect_the_references<T>(map, n);
    }
}

TYPED_TEST(CudaLayerMatrix, AValueRaisedToEpsIsJudgedByItsQuotient) {
  using T = TypeParam;
  const LayerMap map = Zca{1e-3, Algorithm1{.eps = {}, .energy = {}}};
  for (const std::int64_t n : {2, 9, 33}) {
    Batch<T> covariance(1, n);
    for (std::int64_t i = 0; i < n; ++i) covariance(0, i, i) = i == n - 1 ? T(-0.5) : T(n - i);
    EXPECT_EQ(Device<T>{}.forward(map, covariance).rank, on_cpu(map, covariance).rank) << n;
  }
}

TYPED_TEST(CudaLayerMatrix, EveryRulesGradientIsTheReferences) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130}) {
    const SpectralRule rules[] = {Exact{},  Analytic{},   PowerIteration{},
                                  Taylor{}, Lorentzian{}, Masked{.tolerance = 10 * kEps<T>}};
    const Batch<T> covariance = as<T>(spread_covariance(n)),
                   weight = as<T>(random_matrices(1, n, 4));
    for (const RankPolicy& policy : kLayerPolicies)
      for (const LayerMap& map : maps(policy)) {
        const Mapped<T> m = on_cpu(map, covariance);
        for (const SpectralRule& rule : rules) {
          SCOPED_TRACE(to_string(map) + ", " + to_string(rule) + ", n = " + std::to_string(n));
          const Batch<double> truth = gradient_by_reference(map, rule, covariance, m, weight);
          const Batch<T> ours = Device<T>{}.backward(map, rule, covariance, m, weight);
          // The state is bitwise the same. Rounding in between is divided by the gaps.
          const double size = largest_entry(truth) + amplification(m) * largest_entry(m.result);
          EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, size));
          EXPECT_TRUE(exactly_symmetric(ours));
        }
      }
  }
}

TYPED_TEST(CudaLayerMatrix, BelowEpsTheGradientIsTheReferencesUnderEveryRule) {
  using T = TypeParam;
  for (const std::int64_t n : {5, 8, 16, 33, 64, 65, 100})
    for (const Batch<T>& covariance : {as<T>(beyond_positive(n)), as<T>(with_dead_channels(n))}) {
      const Batch<T> weight = as<T>(random_matrices(1, n, 4));
      for (const RankPolicy& policy : kLayerPolicies)
        for (const LayerMap& map : maps(policy)) {
          const Mapped<T> m = on_cpu(map, covariance), there = Device<T>{}.forward(map, covariance);
          EXPECT_EQ(there.rank, m.rank) << to_string(map) << ", n = " << n;
          for (std::size_t i = 0; i < m.values.size(); ++i)
            EXPECT_NEAR(there.values[i], m.values[i], rounding<T>(n, double(m.values[0])));
          for (const SpectralRule& rule :
               std::initializer_list<SpectralRule>{Exact{}, Analytic{}, PowerIteration{}, Taylor{},
                                                   Lorentzian{}, Masked{10 * kEps<T>}}) {
            SCOPED_TRACE(to_string(map) + ", " + to_string(rule) + ", n = " + std::to_string(n));
            const Batch<double> truth = gradient_by_reference(map, rule, covariance, m, weight);
            const Batch<T> ours = Device<T>{}.backward(map, rule, covariance, m, weight);
            EXPECT_EQ(all_finite(ours), all_finite(truth));
            if (!all_finite(truth)) continue;
            const double size = largest_entry(truth) + amplification(m) * largest_entry(m.result);
            EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, size));
          }
        }
    }
}

TYPED_TEST(CudaLayerMatrix, GradientsOfLargeCovariancesAreTheCpus) {
  using T = TypeParam;
  for (const std::int64_t n : {128, 200, 256, 300}) {
    const Batch<T> covariance = as<T>(wishart(n, 2 * n, 5)),
                   weight = as<T>(random_matrices(1, n, 4));
    for (const LayerMap& map : maps(LeadingEnergy{0.8})) {
      const Mapped<T> m = on_cpu(map, covariance);
      Batch<T> twin(1, n);
      Mapped<T> state = m;
      cpu::layer_matrix_backward<T>(map, Taylor{}, covariance.view(), state.state(), weight.view(),
                                    twin.view());
      const Batch<T> ours = Device<T>{}.backward(map, Taylor{}, covariance, m, weight);
      EXPECT_LE(largest_difference(ours, as<double>(twin)), rounding<T>(n, 4 * largest_entry(twin)))
          << to_string(map) << ", n = " << n;
      EXPECT_TRUE(exactly_symmetric(ours));
    }
  }
}

template <typename T>
std::vector<std::pair<std::string, Batch<T>>> degenerate(std::int64_t n) {
  const auto one = spectrum(n, [](double i) { return i == 0 ? 1.0 : 0.0; });
  return {{"zero", Batch<T>(1, n)},
          {"eps identity", as<T>(diagonal(std::vector<double>(std::size_t(n), 1e-4)))},
          {"all ones", Batch<T>(1, n, T(1))},
          {"rank one", as<T>(with_spectrum(one, 3))},
          {"few samples", as<T>(wishart(n, (n + 3) / 4, 3))},
          {"few large samples", as<T>(scaled(wishart(n, (n + 3) / 4, 3), 1e8))},
          {"tiny", as<T>(scaled(wishart(n, 4 * n, 3), 1e-25))}};
}

TYPED_TEST(CudaLayerMatrix, DegenerateCovariancesGiveFiniteResultsAndGradients) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 16, 33, 70})
    for (const auto& [name, covariance] : degenerate<T>(n)) {
      const Batch<T> weight = as<T>(random_matrices(1, n, 4));
      for (const RankPolicy& policy : kLayerPolicies)
        for (const LayerMap& map : maps(policy)) {
          SCOPED_TRACE(name + ", " + to_string(map) + ", n = " + std::to_string(n));
          const Mapped<T> m = Device<T>{}.forward(map, covariance);
          EXPECT_TRUE(all_finite(m.result));
          EXPECT_TRUE(1 <= m.rank[0] && m.rank[0] <= n);
          for (const SpectralRule& rule :
               {SpectralRule(Exact{}), SpectralRule(PowerIteration{}), SpectralRule(Masked{})})
            EXPECT_TRUE(all_finite(Device<T>{}.backward(map, rule, covariance, m, weight)));
        }
    }
}

TYPED_TEST(CudaLayerMatrix, WithoutEpsADroppedDirectionOfNoVarianceIsStillARowOfZeros) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 5, 40, 70, 130}) {
    Batch<T> covariance(1, n);
    covariance(0, 0, 0) = 4;
    const Batch<T> weight = as<T>(random_matrices(1, n, 4));
    for (const LayerMap& map :
         {LayerMap(PcaWhitening{0, LeadingCount{1}}), LayerMap(Zca{0, LeadingCount{1}})}) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      const Mapped<T> m = Device<T>{}.forward(map, covariance);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          ASSERT_NEAR(double(m.result(0, i, j)), i == 0 && j == 0 ? 0.5 : 0.0, rounding<T>(1, 1));
      const Batch<T> got = Device<T>{}.backward(map, Exact{}, covariance, m, weight);
      EXPECT_LE(largest_difference(got, gradient_by_reference(map, Exact{}, covariance, m, weight)),
                rounding<T>(n, largest_entry(got)));
    }
  }
}

/// Covariances from different seeds.
template <typename T>
Batch<T> crowd(std::int64_t batch, std::int64_t n) {
  Batch<T> all(batch, n);
  for (std::int64_t b = 0; b < batch; ++b)
    all.set(b, wishart(n, 4 * n, std::uint64_t(b + 1)).matrix(0));
  return all;
}

TYPED_TEST(CudaLayerMatrix, NaNStaysWithItsMatrix) {
  using T = TypeParam;
  for (const std::int64_t n : {6, 16, 20, 64, 66})
    for (const LayerMap& map : maps(Algorithm1{.energy = 0.9})) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      const Batch<T> good = crowd<T>(7, n), weight = as<T>(random_matrices(7, n, 4));
      Batch<T> bad = good;
      bad(1, 4, 2) = std::numeric_limits<T>::quiet_NaN();
      const Mapped<T> clean = Device<T>{}.forward(map, good),
                      spoilt = Device<T>{}.forward(map, bad);
      const Batch<T> clean_slope = Device<T>{}.backward(map, Exact{}, good, clean, weight),
                     slope = Device<T>{}.backward(map, Exact{}, bad, spoilt, weight);
      for (std::int64_t b = 0; b < 7; ++b) {
        if (b == 1) continue;
        EXPECT_TRUE(bitwise_equal(clean.result.matrix(b), spoilt.result.matrix(b), n * n));
        EXPECT_TRUE(bitwise_equal(clean_slope.matrix(b), slope.matrix(b), n * n));
        EXPECT_EQ(clean.rank[std::size_t(b)], spoilt.rank[std::size_t(b)]);
      }
      for (std::int64_t k = 0; k < n * n; ++k) {
        ASSERT_TRUE(std::isnan(spoilt.result.matrix(1)[k]));
        ASSERT_TRUE(std::isnan(slope.matrix(1)[k]));
      }
      EXPECT_EQ(spoilt.rank[1], 1);
    }
}

TYPED_TEST(CudaLayerMatrix, BatchesAndPlaces) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 16, 20, 40})
    for (const std::int64_t batch : {7, 300}) {
      if (batch > 7 && n > 20) continue;
      const Batch<T> all = crowd<T>(batch, n), weight = as<T>(random_matrices(batch, n, 4));
      for (const LayerMap& map : maps(LeadingEnergy{0.9})) {
        SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
        const Mapped<T> m = on_cpu(map, all);
        const Batch<T> slope = Device<T>{}.backward(map, Exact{}, all, m, weight);
        for (const std::int64_t b : {std::int64_t(0), batch / 2, batch - 1}) {
          Mapped<T> one(1, n);
          one.values.assign(m.values.begin() + b * n, m.values.begin() + (b + 1) * n);
          one.vectors.set(0, m.vectors.matrix(b));
          one.rank = {m.rank[std::size_t(b)]};
          Batch<T> covariance(1, n), gradient(1, n);
          covariance.set(0, all.matrix(b));
          gradient.set(0, weight.matrix(b));
          const Batch<T> alone = Device<T>{}.backward(map, Exact{}, covariance, one, gradient);
          EXPECT_TRUE(bitwise_equal(alone.matrix(0), slope.matrix(b), n * n));
        }
      }
    }
}

TYPED_TEST(CudaLayerMatrix, StridesGraphsAndTheLowerTriangleAlone) {
  using T = TypeParam;
  for (const std::int64_t n : {5, 32, 64, 66})
    for (const LayerMap& map : maps(Algorithm1{.energy = 0.9})) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      const Batch<T> covariance = crowd<T>(3, n), weight = as<T>(random_matrices(3, n, 4));
      Batch<T> lower = covariance;
      for (std::int64_t b = 0; b < 3; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = i + 1; j < n; ++j) lower(b, i, j) = T(1e9);
      const Mapped<T> m = Device<T>{}.forward(map, covariance);
      const Batch<T> slope = Device<T>{}.backward(map, Exact{}, covariance, m, weight);
      for (const Device<T>& device : {Device<T>{.gap = 3}, Device<T>{.in_graph = true}}) {
        const Mapped<T> again = device.forward(map, lower);
        EXPECT_TRUE(bitwise_equal(again.result.data, m.result.data));
        EXPECT_TRUE(bitwise_equal(again.values, m.values));
        EXPECT_EQ(again.rank, m.rank);
        EXPECT_TRUE(
            bitwise_equal(device.backward(map, Exact{}, lower, again, weight).data, slope.data));
      }
    }
}

TYPED_TEST(CudaLayerMatrix, EmptyShapesAndErrors) {
  using T = TypeParam;
  for (const LayerMap& map : maps(Algorithm1{}))
    for (const Batch<T>& nothing : {Batch<T>(0, 5), Batch<T>(3, 0)}) {
      const Mapped<T> m = Device<T>{}.forward(map, nothing);
      EXPECT_TRUE(m.result.data.empty());
      for (const std::int64_t rank : m.rank) EXPECT_EQ(rank, 0);
      EXPECT_TRUE(Device<T>{}.backward(map, Exact{}, nothing, m, nothing).data.empty());
    }
  const Batch<T> covariance(2, 3);
  const Mapped<T> m = on_cpu<T>(Zca{}, covariance);
  EXPECT_THROW(Device<T>{}.backward(Zca{}, Exact{}, covariance, m, Batch<T>(2, 4)), Error);
  EXPECT_THROW(Device<T>{}.forward(Zca{-1}, covariance), Error);
}

}  // namespace
}  // namespace keel::testing
