#pragma once

// Products of float32 matrices on tensor cores. These take numbers of 11 bits (tf32), multiply them
// exactly and add in float32, cutting off instead of rounding. So a number is split in two, and three
// products make one of float32: high high + high low + low high, where low low is below 2^-22 of it.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace keel::cuda {

struct Split {
  unsigned high, low;
};

/// high is x rounded to 11 bits. low is what is left, exactly; its last bit or two are cut off in a
/// product. Not finite x make low NaN. (So does |x| in the topmost 2^-11 of float32's range.)
__device__ inline Split split(float x) {
  const unsigned high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}

/// For x that has no more than 11 bits.
__device__ inline Split unsplit(float x) { return {__float_as_uint(x), 0}; }

/// A number in three of 8 bits: exactly, but for what is below 2^-24 of it.
struct Bfloat16Parts {
  unsigned short part[3];
};
__device__ inline Bfloat16Parts in_bfloat16(float x) {
  Bfloat16Parts made;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    made.part[k] = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    x -= __uint_as_float(unsigned(made.part[k]) << 16);
  }
  return made;
}

/// sums += left right: 16 x 8 numbers from 16 x 8 and 8 x 8, spread over a warp. With lane = 4 g + t:
///     left   (g, t)  (g + 8, t)  (g, t + 4)  (g + 8, t + 4)
///     right  (t, g)  (t + 4, g)
///     sums   (g, 2t)  (g, 2t + 1)  (g + 8, 2t)  (g + 8, 2t + 1)
/// Volatile, so that products stay in the order in which they are written: the next one may wait long for
/// the sums of this one, and the compiler would have them follow each other.
__device__ inline void multiply_add(float (&sums)[4], const unsigned (&left)[4],
                                    const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// The same, from zero.
__device__ inline void multiply(float (&sums)[4], const unsigned (&left)[4],
                                const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(0.0f));
}

/// sums += left right, 16 x 8 numbers from 16 x 16 and 16 x 8 of bfloat16: neighbours along the sum share a
/// register, the first of them low.
///     left   (g, 2t)  (g + 8, 2t)  (g, 2t + 8)  (g + 8, 2t + 8)
///     right  (2t, g)  (2t + 8, g)
__device__ inline void multiply_add_bfloat16(float (&sums)[4], const unsigned (&left)[4],
                                             const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// The same, from zero.
__device__ inline void multiply_bfloat16(float (&sums)[4], const unsigned (&left)[4],
                                         const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(0.0f));
}

}  // namespace keel::cuda
