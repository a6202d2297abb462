#include "keel/activations.h"

#include <bit>

namespace keel {

float to_float(BFloat16 x) { return std::bit_cast<float>(std::uint32_t(x.bits) << 16); }

float to_float(Half x) {
  const std::uint32_t sign = std::uint32_t(x.bits & 0x8000) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fff;
  std::uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude >= 0x7c00) bits = magnitude << 13 | 0x7f800000;
  if (magnitude < 0x0400) bits = std::bit_cast<std::uint32_t>(float(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(bits | sign);
}

BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return {std::uint16_t(bits >> 16 | 0x40)};
  return {std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

Half to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  if (magnitude < 113u << 23)  // adding 0.5 leaves a subnormal half, rounded, in the last bits
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
           std::bit_cast<std::uint32_t>(0.5f);
  if (magnitude >= 143u << 23) half = 0x7c00;
  if (magnitude > 0x7f800000) half = 0x7e00;
  return {std::uint16_t(half | sign)};
}

}  // namespace keel
