#pragma once

// A GradientRule or SpectralRule as a kernel takes it: chosen while running, and without std::visit, which does not run
// on a device.

#include <type_traits>
#include <variant>

#include "keel/spectral.h"
#include "pair_weight.h"

namespace keel::cuda {

/// The weights of all rules, one of which is meant.
template <typename T, typename Rules>
struct DeviceWeights;
template <typename T, typename... Rule>
struct DeviceWeights<T, std::variant<Rule...>> : PairWeight<T, Rule>... {
  int chosen = 0;
  bool exact =
      false;  ///< where no weight is asked for: between a kept and a dropped eigenvalue one is

  /// W_ij for i < j; `largest` is the matrix's largest |eigenvalue|.
  __device__ T weight(T largest, T l_i, T l_j, T b_ij, T b_ji) const {
    T w = 0;
    int place = 0;
    const auto is = [&](const auto& rule) {
      if (place++ != chosen) return false;
      w = rule(largest, l_i, l_j, b_ij, b_ji);
      return true;
    };
    (is(static_cast<const PairWeight<T, Rule>&>(*this)) || ...);
    return w;
  }

  template <typename Chosen>
  void choose(const Chosen& rule, std::int64_t n) {
    static_cast<PairWeight<T, Chosen>&>(*this) = pair_weight<T>(rule, n);
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

/// The rule for n x n matrices, from either variant.
template <typename T, typename Variant>
DeviceRule<T> device_rule(const Variant& rule, std::int64_t n) {
  DeviceRule<T> result;
  std::visit([&](const auto& chosen) { result.choose(chosen, n); }, rule);
  return result;
}

/// The largest magnitude among values in descending order; NaN counts for nothing.
template <typename T>
__device__ __forceinline__ T largest_magnitude(int n, const T* values) {
  return fmax(fmax(fabs(values[0]), fabs(values[n - 1])), T(0));
}

}  // namespace keel::cuda
