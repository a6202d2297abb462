#pragma once

// Non-negative floating-point numbers compare like their bits. So atomicMax on the bits finds the
// largest, in whatever order the numbers arrive.

namespace keel::cuda {

template <typename T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = unsigned;
};
template <>
struct BitsOf<double> {
  using Type = unsigned long long;
};
template <typename T>
using Bits = typename BitsOf<T>::Type;

__device__ inline unsigned as_bits(float x) { return __float_as_uint(x); }
__device__ inline unsigned long long as_bits(double x) {
  return static_cast<unsigned long long>(__double_as_longlong(x));
}
__device__ inline float from_bits(unsigned x) { return __uint_as_float(x); }
__device__ inline double from_bits(unsigned long long x) {
  return __longlong_as_double(static_cast<long long>(x));
}

}  // namespace keel::cuda
