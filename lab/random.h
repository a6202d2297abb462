#pragma once

// Random numbers that are the same on every platform and available in any order.

#include <cstdint>

namespace keel::lab {

/// splitmix64's increment: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// splitmix64's finaliser: a good hash of one number.
inline std::uint64_t hashed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline std::uint64_t hashed(std::uint64_t seed, std::uint64_t x) {
  return hashed(hashed(seed + kGolden) + kGolden * (x + 1));
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() { return hashed(state_ += kGolden); }
  double uniform() { return double(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Approximately normal (a sum of four uniforms) with unit variance. Cheap, for noise.
  double noise() {
    const std::uint64_t b = bits();
    const std::uint64_t sum = (b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48);
    return (double(sum) - 131070.0) * (1.7320508075688772 / 65536.0);
  }

 private:
  std::uint64_t state_;
};

}  // namespace keel::lab
