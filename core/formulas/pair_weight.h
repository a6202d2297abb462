#pragma once

// W_ij of each gradient rule, for all backends: of a pair i < j of eigenvalues, in either order.
// Every formula is homogeneous in the eigenvalues, so rule(c M) = rule(M) / c without absolute
// tolerances. `largest` is the matrix's largest |eigenvalue|.
//
// quotient() is numerator / x for a sum x of two singular values, bounded as the rule bounds
// quotients by gaps.

#include <cmath>
#include <cstdint>
#include <limits>

#include "eigenvalue_noise.h"
#include "host_device.h"
#include "keel/gradient_rule.h"

namespace keel {

/// 1 + q + ... + q^(terms-1), terms >= 0, by doubling. Takes O(log(terms)) multiplications and no
/// division, so it is accurate at q = 1.
template <typename T>
KEEL_HOST_DEVICE inline T geometric_sum(int terms, T q) {
  // The sum of the first m terms, and q^m, where m is the prefix of the bits of `terms` read so far.
  T sum = 0, power = 1;
  int bit = 1;
  while (bit <= terms / 2) bit *= 2;
  for (; bit > 0; bit /= 2) {
    sum += sum * power;
    power *= power;
    if (terms & bit) {
      sum += power;
      power *= q;
    }
  }
  return sum;
}

/// Which eigenvalue of a pair power iteration would find first. Of l and -l it is l, of two equal
/// ones the first.
template <typename T>
struct Leader {
  bool is_first;
  T value;
  T ratio;  ///< follower / leader, in [-1, 1]

  KEEL_HOST_DEVICE Leader(T first, T second)
      : is_first(std::abs(first) > std::abs(second) ||
                 (!(std::abs(second) > std::abs(first)) && !(second > first))),
        value(is_first ? first : second),
        ratio((is_first ? second : first) / value) {}
};

template <typename T>
struct AnalyticWeight {
  static constexpr bool kTextbook = true;
  KEEL_HOST_DEVICE T operator()(T /*largest*/, T l_i, T l_j, T b_ij, T b_ji) const {
    return T(0.5) * (b_ji - b_ij) / (l_i - l_j);
  }
  KEEL_HOST_DEVICE T quotient(T /*largest*/, T numerator, T x) const {
    return x == 0 && numerator == 0 ? T(0) : numerator / x;
  }
};

template <typename T>
struct PowerIterationWeight {
  static constexpr bool kTextbook = false;
  int terms;
  KEEL_HOST_DEVICE T operator()(T /*largest*/, T l_i, T l_j, T b_ij, T b_ji) const {
    const Leader<T> leader(l_i, l_j);
    if (leader.value == 0) return 0;
    const T fewer = geometric_sum(terms - 1, leader.ratio);
    const T all = 1 + leader.ratio * fewer;
    const T numerator = leader.is_first ? all * b_ji - fewer * b_ij : all * b_ij - fewer * b_ji;
    return T(0.5) * numerator / leader.value;
  }
  KEEL_HOST_DEVICE T quotient(T /*largest*/, T numerator, T x) const {
    return x == 0 ? T(0) : numerator / x;
  }
};

template <typename T>
struct TaylorWeight {
  static constexpr bool kTextbook = false;
  int terms;
  KEEL_HOST_DEVICE T operator()(T /*largest*/, T l_i, T l_j, T b_ij, T b_ji) const {
    const Leader<T> leader(l_i, l_j);
    if (leader.value == 0) return 0;
    const T difference = leader.is_first ? b_ji - b_ij : b_ij - b_ji;
    return T(0.5) * geometric_sum(terms, leader.ratio) * difference / leader.value;
  }
  KEEL_HOST_DEVICE T quotient(T /*largest*/, T numerator, T x) const {
    return x == 0 ? T(0) : numerator / x;
  }
};

template <typename T>
struct LorentzianWeight {
  static constexpr bool kTextbook = false;
  T width;
  KEEL_HOST_DEVICE T operator()(T largest, T l_i, T l_j, T b_ij, T b_ji) const {
    const T gap = l_i - l_j, w = width * largest;
    if (gap == 0) return 0;
    // gap / (gap^2 + w^2), without the squares that under- or overflow
    return T(0.5) * (b_ji - b_ij) / (gap + w * (w / gap));
  }
  KEEL_HOST_DEVICE T quotient(T largest, T numerator, T x) const {
    const T w = width * largest;
    return x == 0 ? T(0) : numerator / (x + w * (w / x));
  }
};

template <typename T>
struct MaskedWeight {
  static constexpr bool kTextbook = false;
  T tolerance;
  KEEL_HOST_DEVICE T operator()(T largest, T l_i, T l_j, T b_ij, T b_ji) const {
    const T gap = l_i - l_j;
    if (std::abs(gap) <= tolerance * largest) return 0;
    return T(0.5) * (b_ji - b_ij) / gap;
  }
  KEEL_HOST_DEVICE T quotient(T largest, T numerator, T x) const {
    return x <= tolerance * largest ? T(0) : numerator / x;
  }
};

/// An eigenvalue that a layer does not let fall below its eps. NaN stays.
template <typename T>
KEEL_HOST_DEVICE inline T raised(T value, T floor) {
  return value < floor ? floor : value;
}

/// The weight of a pair whose eigenvalues, as eigh found them, are l_i and l_j, where the loss
/// depends on them through max(l, floor). To raise two of them makes them equal, so the textbook
/// rule, which divides by the difference, takes them as they were found: that is the gradient of
/// this formula. For the others a value below the floor is a rounding error of the floor.
template <typename T, typename Weight>
KEEL_HOST_DEVICE inline T weight_above(T floor, const Weight& weight, T largest, T l_i, T l_j,
                                       T b_ij, T b_ji) {
  if constexpr (Weight::kTextbook) return weight(largest, l_i, l_j, b_ij, b_ji);
  return weight(largest, raised(l_i, floor), raised(l_j, floor), b_ij, b_ji);
}

/// d max(l, floor) / dl under a rule. Only the textbook rule counts the part below the floor.
template <typename T>
KEEL_HOST_DEVICE inline T slope_above(T floor, bool textbook, T l) {
  return textbook && l < floor ? T(0) : T(1);
}

/// The weight function of a rule for n x n matrices.
template <typename T>
AnalyticWeight<T> pair_weight(const Analytic&, std::int64_t) {
  return {};
}
template <typename T>
PowerIterationWeight<T> pair_weight(const PowerIteration& rule, std::int64_t) {
  return {rule.terms};
}
template <typename T>
TaylorWeight<T> pair_weight(const Taylor& rule, std::int64_t) {
  return {rule.terms};
}
template <typename T>
LorentzianWeight<T> pair_weight(const Lorentzian& rule, std::int64_t) {
  return {T(rule.width)};
}
template <typename T>
MaskedWeight<T> pair_weight(const Masked& rule, std::int64_t n) {
  return {rule.tolerance ? T(*rule.tolerance) : repeat_noise<T>(n)};
}

template <typename T, typename Rule>
using PairWeight = decltype(pair_weight<T>(Rule{}, 0));

}  // namespace keel
