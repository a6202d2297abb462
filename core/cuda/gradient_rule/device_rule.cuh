#pragma once

// A GradientRule or SpectralRule for kernels: selected at run time, without std::visit, which does
// not work on a device.

#include <limits>
#include <type_traits>
#include <variant>

#include "cuda/matrix/small.cuh"
#include "formulas/pair_weight.h"
#include "keel/spectral.h"

namespace keel::cuda {

/// The weights of all rules, of which one is chosen.
template <typename T, typename Rules>
struct DeviceWeights;
template <typename T, typename... Rule>
struct DeviceWeights<T, std::variant<Rule...>> : PairWeight<T, Rule>... {
  int chosen = 0;
  /// The exact rule, which uses the chosen weight only between a kept and a dropped eigenvalue.
  bool exact = false;

  bool textbook = false;

  /// W_ij for i < j of eigenvalues as eigh found them; `largest` is the matrix's largest
  /// |max(eigenvalue, floor)|.
  __device__ T weight(T floor, T largest, T l_i, T l_j, T b_ij, T b_ji) const {
    T w = 0;
    int place = 0;
    const auto is = [&](const auto& rule) {
      if (place++ != chosen) return false;
      w = weight_above(floor, rule, largest, l_i, l_j, b_ij, b_ji);
      return true;
    };
    (is(static_cast<const PairWeight<T, Rule>&>(*this)) || ...);
    return w;
  }

  template <typename Chosen>
  void choose(const Chosen& rule, std::int64_t n) {
    static_cast<PairWeight<T, Chosen>&>(*this) = pair_weight<T>(rule, n);
    textbook = PairWeight<T, Chosen>::kTextbook;
    int place = 0;
    ((std::is_same_v<Rule, Chosen> ? void(chosen = place) : void(), ++place), ...);
  }
  void choose(const Exact& rule, std::int64_t n) {
    choose(Taylor{rule.terms}, n);
    exact = true;
  }
};

template <typename T>
using DeviceRule = DeviceWeights<T, GradientRule>;

/// The rule for n x n matrices, from a GradientRule or a SpectralRule.
template <typename T, typename Variant>
DeviceRule<T> device_rule(const Variant& rule, std::int64_t n) {
  DeviceRule<T> result;
  std::visit([&](const auto& chosen) { result.choose(chosen, n); }, rule);
  return result;
}

/// No floor.
template <typename T>
inline constexpr T kNone = -std::numeric_limits<T>::infinity();

/// The largest |max(value, floor)| of sorted values. NaN is ignored.
template <typename T>
__device__ __forceinline__ T largest_magnitude(int n, const T* values, T floor) {
  return fmax(fmax(fabs(raised(values[0], floor)), fabs(raised(values[n - 1], floor))), T(0));
}

namespace small {

/// From B to W, for eigh_backward and the backward of PCA whitening with n <= 64: w = W of the rule,
/// with diagonal(i) on its diagonal, from b = V^T dL_dvectors. Two eigenvalues after the first `rank`
/// contribute nothing.
template <typename T, int N, typename Diagonal>
__device__ void weigh_pairs(const SmallTeam<T, N>& team, const DeviceRule<T>& rule, T floor,
                            std::int64_t rank, const T* l, const T* b, const Diagonal& diagonal,
                            T* w) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  const T largest = largest_magnitude(team.n, l, floor);
  team.template for_each_entry<1>([&](int i, int j) {
    const int first = i < j ? i : j, second = i < j ? j : i;
    w[i * kStride + j] =
        i == j          ? diagonal(i)
        : first >= rank ? T(0)
                        : rule.weight(floor, largest, l[first], l[second],
                                      b[first * kStride + second], b[second * kStride + first]);
  });
  team.sync();
}

}  // namespace small

}  // namespace keel::cuda
