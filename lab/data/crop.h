#pragma once

// Where augment() takes a pixel from, for kernels that do all of it at once.

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

  /// The source's column of a column of the result; outside of the image it is black.
  KEEL_LAB_BOTH std::int64_t column(std::int64_t x, std::int64_t width) const {
    return (flipped ? width - 1 - x : x) + right;
  }
};

/// The hash of augment(). `key` is that of the seed.
KEEL_LAB_BOTH inline Crop crop_of(std::int64_t key, std::int64_t epoch, std::int64_t index,
                                  std::int64_t padding, bool flip) {
  constexpr std::int64_t kLow31 = 0x7fffffff, kLow32 = 0xffffffff;
  std::int64_t lot = ((index & kLow31) * 0x2545f491 ^ (epoch & kLow31) * 0x6c8e9cf5 ^ key) & kLow32;
  for (int round = 0; round < 2; ++round) lot = (lot ^ lot >> 16) * 0x45d9f3b & kLow32;
  lot ^= lot >> 16;
  const std::int64_t places = 2 * padding + 1;
  return {((lot & 0x7fff) * places >> 15) - padding,
          ((lot >> 15 & 0x7fff) * places >> 15) - padding, flip && lot >> 31 != 0};
}

}  // namespace keel::lab
