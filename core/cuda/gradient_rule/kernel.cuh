#pragma once

// The middle of eigh_backward for n <= 64, from B to W. Shared with the backward of PCA whitening.

#include "cuda/gradient_rule/device_rule.cuh"
#include "cuda/matrix/small.cuh"

namespace keel::cuda::small {

/// w = W of the rule, with diagonal(i) on its diagonal. b = V^T dL_dvectors. Two eigenvalues after
/// the first `rank` contribute nothing.
template <typename T, int N, typename Diagonal>
__device__ void weigh_pairs(const Squad<T, N>& squad, const DeviceRule<T>& rule, T floor,
                            std::int64_t rank, const T* l, const T* b, const Diagonal& diagonal,
                            T* w) {
  constexpr int kStride = Squad<T, N>::kStride;
  const T largest = largest_magnitude(squad.n, l, floor);
  squad.template for_each_entry<1>([&](int i, int j) {
    const int first = i < j ? i : j, second = i < j ? j : i;
    w[i * kStride + j] =
        i == j          ? diagonal(i)
        : first >= rank ? T(0)
                        : rule.weight(floor, largest, l[first], l[second],
                                      b[first * kStride + second], b[second * kStride + first]);
  });
  squad.sync();
}

}  // namespace keel::cuda::small
