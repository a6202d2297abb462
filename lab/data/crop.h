#pragma once

// The source pixel of each pixel of augment()'s result, for fused kernels.

#include <cstdint>

#ifdef __CUDACC__
#define KEEL_LAB_BOTH __host__ __device__
#else
#define KEEL_LAB_BOTH
#endif

namespace keel::lab {

struct Crop {
  std::int64_t down, right;  ///< offsets, from -padding to padding
  bool flipped;

  /// The source column for a column of the result. It may be outside the image, where pixels are black.
  KEEL_LAB_BOTH std::int64_t column(std::int64_t x, std::int64_t width) const {
    return (flipped ? width - 1 - x : x) + right;
  }
};

/// The same hash as in augment(). `key` is the hashed seed.
KEEL_LAB_BOTH inline Crop crop_of(std::int64_t key, std::int64_t epoch, std::int64_t index,
                                  std::int64_t padding, bool flip) {
  constexpr std::int64_t kLow31 = 0x7fffffff, kLow32 = 0xffffffff;
  std::int64_t hash =
      ((index & kLow31) * 0x2545f491 ^ (epoch & kLow31) * 0x6c8e9cf5 ^ key) & kLow32;
  for (int round = 0; round < 2; ++round) hash = (hash ^ hash >> 16) * 0x45d9f3b & kLow32;
  hash ^= hash >> 16;
  const std::int64_t places = 2 * padding + 1;
  return {((hash & 0x7fff) * places >> 15) - padding,
          ((hash >> 15 & 0x7fff) * places >> 15) - padding, flip && hash >> 31 != 0};
}

}  // namespace keel::lab
