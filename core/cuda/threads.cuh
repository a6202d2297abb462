#pragma once

// The threads that share a matrix, its row or its column. Four types, with the same words: thread() of size() threads;
// lane() of lanes() neighbours in a warp, which are group() of groups(); sync(), a barrier of all threads, and any(), a
// vote of all; step(), a barrier of a warp; near(), sum(), product() and largest() over the lanes of a group.
//   Lanes           a part of a warp
//   MatrixThreads   a part of a warp or a whole block, as many as the compiler knows
//   BlockTeam       a whole block of any size, in groups of lanes
//   ClusterTeam     several blocks
// Team (eigh/block/team.cuh), SmallTeam (matrix/small.cuh) and PanelTeam (matrix/panel.cuh) are MatrixThreads that know
// which entries of the matrix each thread has.

namespace keel::cuda {

/// Sums COUNT numbers over a warp, COUNT a power of two up to 32, with COUNT - 1 + log2(32 / COUNT)
/// shuffles instead of 5 COUNT. Returns the sum of number `lane / (32 / COUNT)`.
template <int COUNT, typename T>
__device__ __forceinline__ T warp_sums(int lane, T (&x)[COUNT]) {
#pragma unroll
  for (int count = COUNT, distance = 16; distance > 0; distance /= 2) {
    if (count > 1) {
      count /= 2;
#pragma unroll
      for (int i = 0; i < COUNT / 2; ++i) {
        if (i >= count) break;
        const bool upper = lane & distance;
        const T away = upper ? x[i] : x[i + count];
        x[i] = (upper ? x[i + count] : x[i]) + __shfl_xor_sync(0xffffffffu, away, distance);
      }
    } else {
      x[0] += __shfl_xor_sync(0xffffffffu, x[0], distance);
    }
  }
  return x[0];
}

/// Sums over COUNT adjacent lanes, those far apart first.
template <int COUNT = 32, typename T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int distance = COUNT / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// COUNT adjacent lanes of a warp that share a row, a column or a root, COUNT a power of two. All lanes of the warp take
/// part in each of these.
template <int COUNT>
struct Lanes {
  static constexpr int kLanes = COUNT;
  __device__ static int lane() { return int(threadIdx.x) % COUNT; }
  __device__ static constexpr int lanes() { return COUNT; }
  /// Whether the flag is set in all lanes of the warp, or in any.
  __device__ static bool all(bool flag) { return __all_sync(0xffffffffu, flag); }
  __device__ static bool any_in_warp(bool flag) { return __any_sync(0xffffffffu, flag) != 0; }
  template <typename U>
  __device__ static U near(U x, int distance) {
    return __shfl_xor_sync(0xffffffffu, x, distance);
  }
  template <typename U>
  __device__ static U sum(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x += near(x, distance);
    return x;
  }
  template <typename U>
  __device__ static U product(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x *= near(x, distance);
    return x;
  }
  template <typename U>
  __device__ static U largest(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x = fmax(x, near(x, distance));
    return x;
  }
};

/// COUNT threads with a matrix: a whole block, a warp or a part of one.
template <int COUNT>
struct MatrixThreads {
  static constexpr int kSize = COUNT;
  static constexpr bool kBlock = COUNT > 32;
  int index_in_team;

  __device__ int thread() const { return index_in_team; }
  __device__ static constexpr int size() { return COUNT; }
  __device__ void sync() const {
    if constexpr (kBlock)
      __syncthreads();
    else
      __syncwarp();
  }
  /// Of the block, or of the warp, which may hold several matrices.
  __device__ static bool any(bool flag) {
    if constexpr (kBlock)
      return __syncthreads_or(flag);
    else
      return __any_sync(0xffffffffu, flag);
  }
};

/// A group of LANES threads of one warp works on a column. Each can hold HELD times 16 bytes of it. ALL says that no
/// column is longer than a group can hold.
template <int LANES, int HELD, bool ALL = true>
struct BlockTeam : Lanes<LANES> {
  static constexpr int kHeld = HELD;
  static constexpr bool kAllHeld = ALL;
  static constexpr int kTiles = 1;  ///< of a product (svd/polish/tiles.h) that a thread can hold
  __device__ static int thread() { return int(threadIdx.x); }
  __device__ static int size() { return int(blockDim.x); }
  __device__ static int group() { return thread() / LANES; }
  __device__ static int groups() { return size() / LANES; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static void step() { __syncwarp(); }
  __device__ static bool any(bool flag) { return __syncthreads_or(flag) != 0; }
  __device__ static bool any_in_step(bool flag) { return Lanes<LANES>::any_in_warp(flag); }
  /// The number of threads with the flag. A barrier, as any() and total().
  __device__ static int count(bool flag) { return __syncthreads_count(flag); }
  /// Replaces each number by its sum over all threads, at most 512.
  template <typename T, int COUNT>
  __device__ static void total(T (&x)[COUNT]) {
    __shared__ T of_warp[16][COUNT];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] += __shfl_xor_sync(0xffffffffu, x[i], distance);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) of_warp[threadIdx.x / 32][i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = 0;
#pragma unroll 4
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] += of_warp[warp][i];
    __syncthreads();  // before they are overwritten
  }
  /// May prefetch what is there.
  __device__ static void fetch(const void*) {}
};

/// The blocks of a cluster, which share only global memory.
struct ClusterTeam : BlockTeam<32, 4, false> {
  static constexpr int kBlocks = 8;
  int* flags;  ///< one per block

  __device__ explicit ClusterTeam(int* memory) : flags(memory) {}
  __device__ static int rank() { return int(blockIdx.x) % kBlocks; }
  __device__ static int thread() { return rank() * int(blockDim.x) + int(threadIdx.x); }
  __device__ static int size() { return kBlocks * int(blockDim.x); }
  __device__ static int group() { return thread() / kLanes; }
  __device__ static int groups() { return size() / kLanes; }
  __device__ static void sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
  __device__ bool any(bool flag) const {
    const int here = __syncthreads_or(flag);
    if (threadIdx.x == 0) flags[rank()] = here;
    sync();
    int all = 0;
    for (int r = 0; r < kBlocks; ++r) all |= flags[r];
    sync();  // before they are overwritten
    return all != 0;
  }
  __device__ static void fetch(const void* place) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(place)));
  }
};

}  // namespace keel::cuda
