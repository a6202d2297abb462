#pragma once

// How threads read and write memory: several numbers at once, by asynchronous copies, and by their bits.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::cuda {

/// COUNT adjacent elements that are read or written at once. Aligned to their total size, but to at
/// most 16 bytes.
template <typename T, int COUNT = 4>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Pack {
  T at[COUNT];
};

template <int COUNT = 4, typename T>
__device__ __forceinline__ Pack<T, COUNT>& pack_at(T* place) {
  return *reinterpret_cast<Pack<T, COUNT>*>(place);
}
template <int COUNT = 4, typename T>
__device__ __forceinline__ const Pack<T, COUNT>& pack_at(const T* place) {
  return *reinterpret_cast<const Pack<T, COUNT>*>(place);
}

// --- Asynchronous copies into shared memory (cp.async). A thread may read what it copied itself after await_copies,
// without a barrier.

/// BYTES is 4, 8 or 16. Both addresses must be multiples of it.
template <int BYTES>
__device__ inline void copy_async(void* to_shared, const void* from) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                 : "memory");
}

__device__ inline void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Commits a thread's copies since the last call as one group, which may be empty.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits for all committed groups but the last OPEN.
template <int OPEN>
__device__ inline void await_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

/// A barrier for some warps of a block: those that pass the same number, from 1 to 15.
template <int WARPS>
__device__ inline void sync_team(int number) {
  if constexpr (WARPS == 1)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(WARPS * 32) : "memory");
}

// --- Non-negative floating-point numbers compare like their bits. So atomicMax on the bits finds the largest, in
// whatever order the numbers arrive.

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
