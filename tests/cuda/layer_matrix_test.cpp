// layer_matrix on the GPU: the contract, and what is particular to CUDA. Needs a GPU.

#include "keel/layer_matrix.h"

#include <gtest/gtest.h>

#include "cuda_backend.h"
#include "support/layer_matrix_contract.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {
namespace {

using EveryLayerMatrixOnCuda = OnFloats<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, LayerMatrixContract, EveryLayerMatrixOnCuda);

template <typename T>
using Device = LayerMatrixBy<Cuda, T>;

template <typename T>
Mapped<T> on_cpu(const LayerMap& map, const Batch<T>& covariance) {
  return LayerMatrixBy<Cpu, T>{}.forward(map, covariance);
}

template <typename T>
class CudaLayerMatrix : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaLayerMatrix, Types);

TYPED_TEST(CudaLayerMatrix, QuotientsAreComputedForASmallTolerance) {
  // So small that no bound on the quotients' errors is below it, and still above these.
  using T = TypeParam;
  for (const std::int64_t n : {5, 9, 16, 17, 33, 64})
    for (const LayerMap& map : maps(Algorithm1{.rayleigh_tolerance = 16 * double(n) * kEps<T>})) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      expect_the_references_map<Cuda, T>(map, n);
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

TYPED_TEST(CudaLayerMatrix, StridesAndGraphsGiveTheSameBits) {
  using By = Device<TypeParam>;
  expect_the_same_bits(std::vector<By>{By{.gap = 3}, By{.run = [](auto& call) {
                                         run_as_graph([&](const Stream& on) { call(on); });
                                       }}});
}

}  // namespace
}  // namespace keel::testing
