#pragma once

// Matrices are solved at unit size: scaled by a power of two, which is exact, and scaled back.

#include "keel/eigh.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// 2^exponent as two factors, since one alone may overflow (for a matrix of denormals).
template <typename T>
struct PowerOfTwo {
  T first, second;
  explicit PowerOfTwo(int exponent)
      : first(T(__builtin_ldexp(1.0, exponent / 2))),
        second(T(__builtin_ldexp(1.0, exponent - exponent / 2))) {}
  T operator*(T x) const { return x * first * second; }
};

/// Computes the exponent of the largest magnitude in the lower triangle (0 for a zero matrix). Of
/// complex entries it takes real and imaginary parts, except the imaginary parts of the diagonal.
/// Returns false if an entry is not finite.
template <typename E>
inline bool scale_exponent(std::int64_t n, const E* matrix, std::int64_t row_stride,
                           int& exponent) {
  using T = RealOf<E>;
  constexpr std::int64_t kParts = kIsComplex<E> ? 2 : 1;
  T largest = 0, not_finite = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T* row = reinterpret_cast<const T*>(matrix + i * row_stride);
    for (std::int64_t j = 0; j <= kParts * i; ++j) {
      const T size = row[j] < 0 ? -row[j] : row[j];
      largest = size > largest ? size : largest;
      not_finite += row[j] * T(0);  // 0 for finite numbers, NaN for the rest
    }
  }
  exponent = 0;
  if (not_finite != 0) return false;
  __builtin_frexp(double(largest), &exponent);
  return true;
}

/// A squared length below this is too close to the denormals to normalise by. Such lengths, at most
/// 1e-15 of a unit-size matrix in float and 1e-146 in double, count as zero.
template <typename T>
inline constexpr T kTinySquare = sizeof(T) == 4
                                     ? T(1.1754943508222875e-38 / 5.9604644775390625e-8)
                                     : T(2.2250738585072014e-308 / 1.1102230246251565e-16);
template <typename T>
inline constexpr T kEpsilon = sizeof(T) == 4 ? T(1.1920928955078125e-07) : T(2.220446049250313e-16);

/// What cannot be told from rounding noise in a unit-size matrix. A low-rank matrix leaves a block
/// that is all noise. Without this bound QL would try to reduce its off-diagonals relative to
/// diagonals just as small.
template <typename T>
inline constexpr T kNoise = kEpsilon<T> / 16;

/// Whether an off-diagonal of this magnitude no longer couples diagonal entries of the given
/// magnitudes.
template <typename T, typename Entry>
inline auto negligible(Entry off, Entry above, Entry below) {
  return off <= kEpsilon<T> * (above + below) + kNoise<T>;
}

/// Sorts n values that are `step` apart: order[k] is the index of the k-th value. Stable in
/// descending order; ascending order is the exact reverse.
template <typename T, typename Index>
inline void sort(EighOrder wanted, std::int64_t n, const T* values, std::int64_t step,
                 Index* order) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = values[i * step];
    std::int64_t place = i;
    for (; place > 0 && values[order[place - 1] * step] < x; --place)
      order[place] = order[place - 1];
    order[place] = Index(i);
  }
  if (wanted == EighOrder::ascending)
    for (std::int64_t i = 0; i < n / 2; ++i) {
      const Index swapped = order[i];
      order[i] = order[n - 1 - i];
      order[n - 1 - i] = swapped;
    }
}

}  // namespace keel::cpu::KEEL_ISA
