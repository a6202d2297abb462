#pragma once

// Products of float32 matrices on tensor cores. These take numbers with 11 significant bits (tf32),
// multiply exactly and add in float32 with truncation instead of rounding. So a number is split
// into two parts, and a float32 product takes three products: high high + high low + low high. The
// omitted low low is below 2^-22 of the product.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "keel/activations.h"

namespace keel::cuda {

struct Split {
  unsigned high, low;
};

/// high is x rounded to 11 bits. low is the exact rest; a product truncates its last bit or two. If
/// x is not finite, low is NaN. (The same holds for |x| in the topmost 2^-11 of float32's range.)
__device__ inline Split split(float x) {
  const unsigned high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}

/// For x with at most 11 significant bits.
__device__ inline Split unsplit(float x) { return {__float_as_uint(x), 0}; }

/// A number as two parts of 8 bits, exact up to 2^-16 of it. That is 1/256 of what the rounding of a
/// bfloat16 factor may have cost.
struct Bfloat16Parts {
  unsigned short part[2];
};
__device__ inline Bfloat16Parts in_bfloat16(float x) {
  Bfloat16Parts made;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    made.part[k] = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    x -= __uint_as_float(unsigned(made.part[k]) << 16);
  }
  return made;
}

/// sums += left right: a 16 x 8 product of 16 x 8 and 8 x 8 matrices, distributed over a warp. With
/// lane = 4 g + t:
///     left   (g, t)  (g + 8, t)  (g, t + 4)  (g + 8, t + 4)
///     right  (t, g)  (t + 4, g)
///     sums   (g, 2t)  (g, 2t + 1)  (g + 8, 2t)  (g + 8, 2t + 1)
/// Volatile keeps the products in program order. The compiler would put products with the same sums
/// next to each other, where each has to wait for the previous one.
__device__ inline void multiply_add(float (&sums)[4], const unsigned (&left)[4],
                                    const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// sums = left right.
__device__ inline void multiply(float (&sums)[4], const unsigned (&left)[4],
                                const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(0.0f));
}

/// sums += left right: a 16 x 8 product of 16 x 16 and 16 x 8 bfloat16 matrices. Adjacent numbers
/// along the sum share a register, the first one in the lower half.
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

/// sums = left right, the same for both 16-bit types.
template <typename T>
__device__ void multiply_stored(float (&sums)[4], const unsigned (&left)[4],
                                const unsigned (&right)[2]);
template <>
__device__ inline void multiply_stored<BFloat16>(float (&sums)[4], const unsigned (&left)[4],
                                                 const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(0.0f));
}
template <>
__device__ inline void multiply_stored<Half>(float (&sums)[4], const unsigned (&left)[4],
                                             const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(0.0f));
}

/// sums += left right.
template <typename T>
__device__ void multiply_add_stored(float (&sums)[4], const unsigned (&left)[4],
                                    const unsigned (&right)[2]);
template <>
__device__ inline void multiply_add_stored<BFloat16>(float (&sums)[4], const unsigned (&left)[4],
                                                     const unsigned (&right)[2]) {
  multiply_add_bfloat16(sums, left, right);
}
template <>
__device__ inline void multiply_add_stored<Half>(float (&sums)[4], const unsigned (&left)[4],
                                                 const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// Two numbers 1 in one register.
template <typename T>
__device__ constexpr unsigned two_ones();
template <>
__device__ constexpr unsigned two_ones<BFloat16>() {
  return 0x3f803f80u;
}
template <>
__device__ constexpr unsigned two_ones<Half>() {
  return 0x3c003c00u;
}

/// Loads four 8 x 8 matrices of 16-bit numbers from shared memory, transposed if wanted. Lane
/// 8 q + r passes the address of row r of matrix q, a multiple of 16 bytes. Lane 4 g + t receives
/// the numbers (g, 2t) and (g, 2t + 1) of each.
template <bool TRANSPOSED>
__device__ inline void load_matrices(unsigned (&x)[4], const void* row) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from)
                 : "memory");
}

}  // namespace keel::cuda
