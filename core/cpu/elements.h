#pragma once

// Conversion between stored elements of activations and vectors of the accumulator's type.

#include <cstring>

#include "keel/activations.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

// Vectors of 16 and 32 bit integers with as many lanes as a vector of floats.
typedef std::uint16_t Bits16 __attribute__((vector_size(KEEL_VECTOR_BYTES / 2)));
typedef std::uint32_t Bits32 __attribute__((vector_size(KEEL_VECTOR_BYTES)));

inline Vec<float> as_floats(Bits32 bits) { return reinterpret_cast<Vec<float>>(bits); }
inline Bits32 as_bits(Vec<float> x) { return reinterpret_cast<Bits32>(x); }

template <typename To, typename From>
inline To load_unaligned(const From* from) {
  To to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

inline Vec<float> load(const float* from) { return load_unaligned<Vec<float>>(from); }
inline Vec<double> load(const double* from) { return load_unaligned<Vec<double>>(from); }

inline Vec<float> load(const BFloat16* from) {
  return as_floats(__builtin_convertvector(load_unaligned<Bits16>(from), Bits32) << 16);
}

inline Vec<float> load(const Half* from) {
  const Bits32 half = __builtin_convertvector(load_unaligned<Bits16>(from), Bits32);
  const Bits32 magnitude = half & 0x7fff;
  const Bits32 shifted = magnitude << 13;
  typedef std::int32_t Signed __attribute__((vector_size(KEEL_VECTOR_BYTES)));
  const Vec<float> subnormal =
      __builtin_convertvector(reinterpret_cast<Signed>(magnitude), Vec<float>) * 0x1p-24f;
  Bits32 bits = shifted + (112u << 23);
  bits = magnitude >= 0x7c00 ? (shifted | 0x7f800000) : bits;
  bits = magnitude < 0x0400 ? as_bits(subnormal) : bits;
  return as_floats(bits | (half & 0x8000) << 16);
}

inline void store(float* to, Vec<float> x) { std::memcpy(to, &x, sizeof x); }
inline void store(double* to, Vec<double> x) { std::memcpy(to, &x, sizeof x); }

inline void store(BFloat16* to, Vec<float> x) {
  const Bits32 bits = as_bits(x);
  const Bits32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Bits32 quiet_nan = bits >> 16 | 0x40;
  const Bits16 result =
      __builtin_convertvector((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded, Bits16);
  std::memcpy(to, &result, sizeof result);
}

inline void store(Half* to, Vec<float> x) {
  const Bits32 bits = as_bits(x);
  const Bits32 magnitude = bits & 0x7fffffff;
  Bits32 half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 rounds a subnormal half into the last bits of the sum.
  half = magnitude < (113u << 23) ? as_bits(as_floats(magnitude) + 0.5f) - as_bits(broadcast(0.5f))
                                  : half;
  half = magnitude >= (143u << 23) ? Bits32{} + 0x7c00 : half;
  half = magnitude > 0x7f800000 ? Bits32{} + 0x7e00 : half;
  const Bits16 result = __builtin_convertvector(half | (bits >> 16 & 0x8000), Bits16);
  std::memcpy(to, &result, sizeof result);
}

/// The vector at `from`, with zeros at and after `end`.
template <typename T>
inline Vec<Accumulator<T>> load_within(const T* from, const T* end) {
  constexpr int lanes = kLanes<Accumulator<T>>;
  if (from + lanes <= end) [[likely]]
    return load(from);
  T elements[lanes] = {};
  for (int k = 0; from + k < end; ++k) elements[k] = from[k];
  return load(elements);
}

/// Stores the first `count` elements of x.
template <typename T>
inline void store_some(T* to, Vec<Accumulator<T>> x, std::int64_t count) {
  constexpr int lanes = kLanes<Accumulator<T>>;
  if (count >= lanes) [[likely]]
    return store(to, x);
  T elements[lanes];
  store(elements, x);
  for (int k = 0; k < count; ++k) to[k] = elements[k];
}

}  // namespace keel::cpu::KEEL_ISA
