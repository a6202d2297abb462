#pragma once

// How the blocks that share a matrix exchange the numbers of a column without a barrier. Every
// number travels with a stamp in an 8-byte word, and the receiver polls until the expected stamp
// arrives. 8-byte words are written atomically, so no fence is needed. The cost is one write to and
// one read from the L2 cache.

#include <cstdint>

namespace keel::cuda {

/// 32 bits of a number in the lower half, the stamp in the upper half.
using StampedWord = unsigned long long;

struct alignas(16) MailWords {
  StampedWord at[2];
};

__device__ __forceinline__ void put_words(MailWords* place, const MailWords& words) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(place), "l"(words.at[0]),
               "l"(words.at[1])
               : "memory");
}
__device__ __forceinline__ MailWords look_at_words(const MailWords* place) {
  MailWords words;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(words.at[0]), "=l"(words.at[1])
               : "l"(place)
               : "memory");
  return words;
}

__device__ __forceinline__ StampedWord stamped(unsigned bits, unsigned stamp) {
  return StampedWord(stamp) << 32 | bits;
}
__device__ __forceinline__ bool has_stamp(const MailWords& words, unsigned stamp) {
  return unsigned(words.at[0] >> 32) == stamp && unsigned(words.at[1] >> 32) == stamp;
}

/// Two numbers of a row.
template <typename T>
struct Mail;

template <>
struct Mail<float> {
  MailWords words[1];

  __device__ void send(float first, float second, unsigned stamp) {
    put_words(words,
              {{stamped(__float_as_uint(first), stamp), stamped(__float_as_uint(second), stamp)}});
  }
  /// Reads the two numbers. Returns whether they have this stamp.
  __device__ bool read(unsigned stamp, float& first, float& second) const {
    first = __uint_as_float(unsigned(words[0].at[0]));
    second = __uint_as_float(unsigned(words[0].at[1]));
    return has_stamp(words[0], stamp);
  }
};

template <>
struct Mail<double> {
  MailWords words[2];

  __device__ void send(double first, double second, unsigned stamp) {
    put_words(words, packed(first, stamp));
    put_words(words + 1, packed(second, stamp));
  }
  __device__ bool read(unsigned stamp, double& first, double& second) const {
    first = number(words[0]);
    second = number(words[1]);
    return has_stamp(words[0], stamp) && has_stamp(words[1], stamp);
  }

 private:
  __device__ static MailWords packed(double x, unsigned stamp) {
    return {
        {stamped(unsigned(__double2loint(x)), stamp), stamped(unsigned(__double2hiint(x)), stamp)}};
  }
  __device__ static double number(const MailWords& words) {
    return __hiloint2double(int(unsigned(words.at[1])), int(unsigned(words.at[0])));
  }
};

/// Receives the numbers of rows first, first + step, ... (those from `from` to n - 1). Waits until
/// all have this stamp.
template <int COUNT, typename T>
__device__ __forceinline__ void receive(const Mail<T>* box, int first, int step, int from, int n,
                                        unsigned stamp, T (&one)[COUNT], T (&other)[COUNT]) {
  constexpr int kWords = int(sizeof(T)) / 4;
  bool here = false;
  while (!here) {
    Mail<T> mail[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int row = first + i * step;
      if (row >= from && row < n)
#pragma unroll
        for (int w = 0; w < kWords; ++w) mail[i].words[w] = look_at_words(box[row].words + w);
    }
    here = true;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int row = first + i * step;
      if (row >= from && row < n) {
        here = mail[i].read(stamp, one[i], other[i]) && here;
      } else {
        one[i] = other[i] = 0;
      }
    }
  }
}

}  // namespace keel::cuda
