#pragma once

// The rank policies as one plain struct, with which the CPU and CUDA walk down the spectrum.

#include <cmath>
#include <cstdint>
#include <limits>
#include <variant>

#include "eigenvalue_noise.h"
#include "host_device.h"
#include "keel/spectral.h"

namespace keel {

/// LeadingEnergy is Algorithm1 with one condition.
struct PlainRankPolicy {
  std::int64_t count = std::numeric_limits<std::int64_t>::max();
  bool by_eps = false, by_rayleigh = false, by_energy = false, keep_reaching = true;
  bool literal = true;  ///< no margins for rounding
  double eps = 0, rayleigh_tolerance = 0, energy = 0;

  /// What the eigenvalues of one matrix are compared with.
  template <typename T>
  struct Bounds {
    T least;  ///< not above this: not above eps
    T same;   ///< no further apart: equal
  };
  template <typename T>
  KEEL_HOST_DEVICE Bounds<T> bounds(std::int64_t n, T largest) const {
    // In the type of the eigenvalues: that of a dead channel is T(eps), which may be above eps.
    if (literal) return {T(eps), T(0)};
    return {T(eps) + covariance_noise<T>(n) * largest, repeat_noise<T>(n) * largest};
  }

  /// Whether this eigenvalue and all smaller ones are dropped. `quotient` is its Rayleigh quotient,
  /// which is only used by_rayleigh.
  template <typename T>
  KEEL_HOST_DEVICE bool stops_before(const Bounds<T>& bounds, T value, T quotient) const {
    if (by_eps && value <= bounds.least) return true;
    // Written so that NaN and non-positive eigenvalues stop as well.
    return by_rayleigh &&
           !(double(std::abs(quotient - value)) < rayleigh_tolerance * double(value));
  }

  /// Whether eigenvalues with this sum, out of `total`, are enough.
  KEEL_HOST_DEVICE bool enough(double sum, double total) const {
    return by_energy && sum >= energy * total;
  }

  /// The contribution of an eigenvalue to those sums.
  template <typename T>
  KEEL_HOST_DEVICE static double energy_of(T value) {
    return value > 0 ? double(value) : 0.0;
  }
};

inline PlainRankPolicy plain(const FullRank&) { return {}; }
inline PlainRankPolicy plain(const LeadingCount& policy) { return {.count = policy.count}; }
inline PlainRankPolicy plain(const LeadingEnergy& policy) {
  return {.by_energy = true, .energy = policy.fraction};
}
inline PlainRankPolicy plain(const Algorithm1& policy) {
  return {.by_eps = policy.eps.has_value(),
          .by_rayleigh = policy.rayleigh_tolerance.has_value(),
          .by_energy = policy.energy.has_value(),
          .keep_reaching = policy.keep_reaching,
          .literal = policy.literal,
          .eps = policy.eps.value_or(0),
          .rayleigh_tolerance = policy.rayleigh_tolerance.value_or(0),
          .energy = policy.energy.value_or(0)};
}
inline PlainRankPolicy plain(const RankPolicy& policy) {
  return std::visit([](const auto& chosen) { return plain(chosen); }, policy);
}

}  // namespace keel
