#include "keel/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/moments_contract.h"

namespace keel::testing {
namespace {

TEST(Moments, ASpreadAtTheEndOfTheRangeIsFinite) {
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  ActivationBuffer<double> x({4, 1, 2, 1}, Order::contiguous);
  for (std::size_t k = 0; k < x.data.size(); ++k) x.data[k] = k % 2 == 0 ? kTiny : 3 * kTiny;
  const auto got = moments_by<Cpu>(x);
  EXPECT_TRUE(std::isfinite(got.mean[0]));
  EXPECT_EQ(got.covariance[0], 0);
}

TEST(PartialMoments, OfNoChannelsMayBeNull) {
  cpu::partial_moments<float>(ActivationBuffer<float>({3, 0, 5, 1}, Order::contiguous).view(),
                              nullptr, nullptr);
}

using MomentsOnCpu = OnEveryElement<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, MomentsContractOf, MomentsOnCpu);
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, MomentsContract, Cpu);

}  // namespace
}  // namespace keel::testing
