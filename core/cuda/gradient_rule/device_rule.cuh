#pragma once

// A GradientRule or SpectralRule as a kernel takes it: one plain struct for all, chosen while running.

#include <variant>

#include "keel/spectral.h"
#include "pair_weight.h"

namespace keel::cuda {

template <typename T>
struct DeviceRule {
  enum class Kind { exact, analytic, power_iteration, taylor, lorentzian, masked };
  Kind kind = Kind::analytic;
  int terms = 0;
  T relative = 0;  ///< Lorentzian's width or Masked's tolerance, for a largest |eigenvalue| of one

  /// W_ij for i < j under the rules for eigh; `largest` is the matrix's largest |eigenvalue|.
  __device__ T weight(T largest, T l_i, T l_j, T b_ij, T b_ji) const {
    switch (kind) {
      case Kind::power_iteration:
        return PowerIterationWeight<T>{terms}(l_i, l_j, b_ij, b_ji);
      case Kind::taylor:
        return TaylorWeight<T>{terms}(l_i, l_j, b_ij, b_ji);
      case Kind::lorentzian:
        return LorentzianWeight<T>{relative * largest}(l_i, l_j, b_ij, b_ji);
      case Kind::masked:
        return MaskedWeight<T>{relative * largest}(l_i, l_j, b_ij, b_ji);
      case Kind::analytic:
      case Kind::exact:
        break;
    }
    return AnalyticWeight<T>{}(l_i, l_j, b_ij, b_ji);
  }
};

/// The rule for n x n matrices, from either variant.
template <typename T, typename Variant>
DeviceRule<T> device_rule(const Variant& rule, std::int64_t n) {
  using Kind = typename DeviceRule<T>::Kind;
  struct Plain {
    std::int64_t n;
    DeviceRule<T> operator()(const Exact& r) const { return {Kind::exact, r.terms, 0}; }
    DeviceRule<T> operator()(const Analytic&) const { return {Kind::analytic, 0, 0}; }
    DeviceRule<T> operator()(const PowerIteration& r) const {
      return {Kind::power_iteration, r.terms, 0};
    }
    DeviceRule<T> operator()(const Taylor& r) const { return {Kind::taylor, r.terms, 0}; }
    DeviceRule<T> operator()(const Lorentzian& r) const {
      return {Kind::lorentzian, 0, pair_weight<T>(r, n, T(1)).width};
    }
    DeviceRule<T> operator()(const Masked& r) const {
      return {Kind::masked, 0, pair_weight<T>(r, n, T(1)).tolerance};
    }
  };
  return std::visit(Plain{n}, rule);
}

/// The largest magnitude among values in descending order; NaN counts for nothing.
template <typename T>
__device__ __forceinline__ T largest_magnitude(int n, const T* values) {
  return fmax(fmax(fabs(values[0]), fabs(values[n - 1])), T(0));
}

}  // namespace keel::cuda
