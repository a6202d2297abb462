#pragma once

// Fixed-width vectors through the compiler's vector extensions: +, -, *, / and comparisons work
// lane by lane. KEEL_VECTOR_BYTES belongs to the instruction set that this file is compiled for
// (see kernels.cpp). Everything is in the instruction set's own namespace. Otherwise the linker
// might keep an inline function compiled for a newer processor and use it on an older one.

#include <cstdint>

namespace keel::cpu::KEEL_ISA {

template <typename T>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using type = std::int32_t;
};
template <>
struct IntegerOf<double> {
  using type = std::int64_t;
};

template <typename T>
inline constexpr int kLanes = KEEL_VECTOR_BYTES / int(sizeof(T));

// The vector types are named through a trait because GCC drops the attribute on dependent aliases.
template <typename T, int LANES = kLanes<T>>
struct VectorOf {
  typedef T type __attribute__((vector_size(LANES * sizeof(T))));
  typedef typename IntegerOf<T>::type mask __attribute__((vector_size(LANES * sizeof(T))));
};
template <typename T>
using Vec = typename VectorOf<T>::type;
template <typename T>
using Mask = typename VectorOf<T>::mask;  // all ones where true, zero where false

template <typename T>
inline Vec<T> broadcast(T x) {
  return x - Vec<T>{};  // x - 0 keeps the sign of zero
}

template <typename T>
inline Vec<T> square_root(Vec<T> x) {
  Vec<T> root;
  for (int k = 0; k < kLanes<T>; ++k) {
    if constexpr (sizeof(T) == 4)
      root[k] = __builtin_sqrtf(x[k]);
    else
      root[k] = __builtin_sqrt(x[k]);
  }
  return root;
}

template <typename T>
inline Vec<T> magnitude(Vec<T> x) {
  return x < 0 ? -x : x;
}

/// A complex number in each lane.
template <typename T>
struct ComplexVec {
  Vec<T> re, im;

  friend ComplexVec operator+(ComplexVec x, ComplexVec y) { return {x.re + y.re, x.im + y.im}; }
  friend ComplexVec operator-(ComplexVec x, ComplexVec y) { return {x.re - y.re, x.im - y.im}; }
  friend ComplexVec operator*(Vec<T> x, ComplexVec y) { return {x * y.re, x * y.im}; }
  friend ComplexVec operator*(ComplexVec x, ComplexVec y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
  }
  void operator+=(ComplexVec x) { *this = *this + x; }
  void operator-=(ComplexVec x) { *this = *this - x; }
};

/// The sum of all lanes, halving the vector at each step.
template <typename T, int LANES = kLanes<T>>
inline T sum_lanes(typename VectorOf<T, LANES>::type x) {
  if constexpr (LANES == 1) {
    return x[0];
  } else {
    typename VectorOf<T, LANES / 2>::type half[2];
    __builtin_memcpy(half, &x, sizeof(x));
    return sum_lanes<T, LANES / 2>(half[0] + half[1]);
  }
}

/// How many of `count` terms to add to one another before their sum is added to the others. Each of
/// `lanes` accumulators then takes as many terms as there are sums, or fewer: a single one would
/// collect rounding errors in proportion to `count`.
inline std::int64_t summed_at_once(std::int64_t count, std::int64_t lanes) {
  std::int64_t run = 64 * lanes;
  while (run * run < lanes * count) run *= 2;
  return run;
}

template <typename T>
inline bool any(Mask<T> mask) {
  typename IntegerOf<T>::type all = 0;
  for (int k = 0; k < kLanes<T>; ++k) all |= mask[k];
  return all != 0;
}

}  // namespace keel::cpu::KEEL_ISA
