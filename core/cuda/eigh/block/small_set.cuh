#pragma once

namespace keel::cuda {

/// A set of numbers from 0 to SIZE - 1, one bit each. All threads of a warp hold the same.
template <int SIZE>
struct SmallSet {
  static constexpr int kWords = (SIZE + 31) / 32;
  unsigned word[kWords] = {};

  SmallSet() = default;
  /// The numbers below `bound` with holds(i). The whole warp takes part, with the same bound.
  template <typename Holds>
  __device__ SmallSet(int lane_of_warp, int bound, const Holds& holds) {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (32 * w < bound)
        word[w] = __ballot_sync(0xffffffffu,
                                lane_of_warp < bound - 32 * w && holds(lane_of_warp + 32 * w));
  }
  __device__ void insert(int i) {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (i / 32 == w) word[w] |= 1u << (i % 32);
  }
  __device__ bool contains(int i) const {
    bool found = false;
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (i / 32 == w) found = word[w] >> (i % 32) & 1;
    return found;
  }
  __device__ int count() const {
    int sum = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum += __popc(word[w]);
    return sum;
  }
  __device__ int count_below(int i) const {
    int sum = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum += __popc(word[w] & below(i - 32 * w));
    return sum;
  }
  /// The least member from i on; SIZE or more if there is none.
  __device__ int next(int i) const {
    int found = 32 * kWords;
#pragma unroll
    for (int w = kWords - 1; w >= 0; --w) {
      const unsigned rest = word[w] & ~below(i - 32 * w);
      if (rest != 0) found = 32 * w + __ffs(int(rest)) - 1;
    }
    return found;
  }

 private:
  /// A word with the bits below i, which may be outside of it.
  __device__ static unsigned below(int i) { return i >= 32 ? ~0u : (1u << (i > 0 ? i : 0)) - 1; }
};

}  // namespace keel::cuda
