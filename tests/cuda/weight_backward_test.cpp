// The contract in keel/weight_backward.h, on the GPU. Needs a GPU.

#include "keel/weight_backward.h"

#include <gtest/gtest.h>

#include "on_device.h"
#include "support/affine.h"
#include "support/batch.h"
#include "support/random.h"

namespace keel::testing {
namespace {

template <typename T>
void check_weight_backward(std::int64_t groups, std::int64_t d) {
  SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(d));
  const std::int64_t channels = groups * d, entries = channels * d;
  auto weight = as<T>(Random(1).normals(channels)), sum = as<T>(Random(2).normals(channels)),
       s = as<T>(Random(3).normals(entries)), p = as<T>(Random(4).normals(entries));
  const std::vector<T> numbers(weight.size(), T(77)), matrices(s.size(), T(77));
  OnDevice<T> weight_there(weight), sum_there(sum), s_there(s), p_there(p);
  const auto per_group = [&](auto& all) { return contiguous<T>(all.data(), groups, d); };
  for (const bool weighted : {true, false}) {
    auto dL_dweight = numbers, dL_dmean = numbers, dL_ds = matrices, matrix = matrices;
    cpu::weight_backward<T>(weighted ? weight.data() : nullptr, per_group(s), sum.data(),
                            per_group(p), dL_dweight.data(), dL_dmean.data(), per_group(dL_ds),
                            per_group(matrix));
    OnDevice<T> first(numbers), second(numbers), third(matrices), fourth(matrices), alone(numbers);
    cuda::weight_backward<T>(weighted ? weight_there.data() : nullptr, per_group(s_there),
                             sum_there.data(), per_group(p_there), first.data(), second.data(),
                             per_group(third), per_group(fourth));
    cuda::weight_backward<T>(nullptr, per_group(s_there), nullptr, per_group(p_there), alone.data(),
                             nullptr, {}, {});
    EXPECT_TRUE(bitwise_equal(third.back(), dL_ds));
    EXPECT_TRUE(bitwise_equal(fourth.back(), matrix));
    EXPECT_TRUE(bitwise_equal(first.back(), alone.back()));
    const auto weights = first.back(), means = second.back();
    for (std::size_t c = 0; c < weights.size(); ++c) {
      ASSERT_NEAR(weights[c], dL_dweight[c], summation_error<T>(d, 4 * double(d)));
      ASSERT_NEAR(means[c], dL_dmean[c], summation_error<T>(d, 4 * double(d)));
    }
  }
}

TEST(CudaWeightBackward, IsTheCpus) {
  for (const auto& [groups, d] : {std::pair(1, 1), {2, 3}, {1, 64}, {16, 4}, {3, 33}, {1, 130}}) {
    check_weight_backward<float>(groups, d);
    check_weight_backward<double>(groups, d);
  }
  cuda::weight_backward<float>(nullptr, {}, nullptr, {}, nullptr, nullptr, {}, {});
}

}  // namespace
}  // namespace keel::testing
