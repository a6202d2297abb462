#pragma once

// Matrices of up to 64 x 64 in shared memory, and the threads that work on one of them together. The
// steps end in a barrier of those threads, so they can follow each other as they are written; what is
// put into shared memory by `put` and `for_each_entry` needs a sync() before it is read.

#include <cstdint>
#include <type_traits>

#include "cuda/launch/card.h"
#include "cuda/launch/early_start.cuh"
#include "cuda/launch/scratch.h"
#include "cuda/matrix/threads.cuh"
#include "cuda/pack.cuh"
#include "keel/matrices.h"

namespace keel::cuda::small {

inline constexpr std::int64_t kLargest = 64;

/// (a + b) / 2, the same to the last bit when a and b change places: no fused multiply-add.
__device__ __forceinline__ float mean(float a, float b) { return __fadd_rn(0.5f * a, 0.5f * b); }
__device__ __forceinline__ double mean(double a, double b) { return __dadd_rn(0.5 * a, 0.5 * b); }

/// Entries of a product that one thread makes.
inline constexpr int kTileColumns = 4;
template <int N>
inline constexpr int kTileRows = N == 64 ? 4 : 2;
template <int N>
inline constexpr int kSquadThreads = N / kTileRows<N>*(N / kTileColumns);  // 32, 128, 256

/// The threads of one n x n matrix, n <= N: a warp, or a block of their own. Each owns a tile of every
/// product. Where the batch ends inside a block, the threads left over do the last matrix once more.
template <typename T, int N>
struct Squad : MatrixThreads<kSquadThreads<N>> {
  using MatrixThreads<kSquadThreads<N>>::thread;
  static constexpr int kRows = kTileRows<N>, kColumns = kTileColumns;
  static constexpr int kTilesAcross = N / kColumns;
  static constexpr int kThreads = kSquadThreads<N>;
  static constexpr int kSquads = kThreads == 32 ? 4 : 1;  // to a block
  static constexpr int kBlock = kThreads * kSquads;
  static constexpr int kBlocks = sizeof(T) == 4 ? 2 : 1;  // at a time on a multiprocessor, at least
  // One more vector a row: rows start in different banks and stay aligned.
  static constexpr int kStride = N + int(16 / sizeof(T));
  static_assert(kThreads % 32 == 0 && kThreads >= N);

  int n;
  std::int64_t index;  ///< of the matrix
  bool exists;         ///< it is this squad's to store

  __device__ explicit Squad(std::int64_t batch, std::int64_t size) : n(int(size)) {
    thread = int(threadIdx.x) % kThreads;
    index = std::int64_t(blockIdx.x) * kSquads + int(threadIdx.x) / kThreads;
    exists = index < batch;
    if (!exists) index = batch - 1;
  }

  /// body(i, j) for the entries of the matrix, neighbouring threads on neighbouring columns. No barrier.
  template <int UNROLL, typename Body>
  __device__ __forceinline__ void for_each_entry(const Body& body) const {
    const int j = thread % N;
    if (j >= n) return;
#pragma unroll UNROLL
    for (int i = thread / N; i < n; i += kThreads / N) body(i, j);
  }
};

/// The shared memory of one squad.
template <typename T, int N, int MATRICES, int VECTORS>
struct alignas(16) Storage {
  T matrix[MATRICES][N * Squad<T, N>::kStride];
  T vector[VECTORS][N];
};

template <typename Own, typename T, int N>
__device__ __forceinline__ Own& storage(const Squad<T, N>&) {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<Own*>(memory)[int(threadIdx.x) / Squad<T, N>::kThreads];
}

/// c = a b over the first `depth` columns of a; c is neither. What lies beyond n in a row or a column
/// is computed along and means nothing, but the inner index never goes there.
template <typename T, int N>
__device__ __forceinline__ void multiply(const Squad<T, N>& squad, int depth, const T* a,
                                         const T* b, T* c) {
  using S = Squad<T, N>;
  const int i = squad.thread / S::kTilesAcross * S::kRows;
  const int j = squad.thread % S::kTilesAcross * S::kColumns;
  if (i < squad.n && j < squad.n) {
    T sum[S::kRows][4] = {};
    a += i * S::kStride;
    b += j;
    int k = 0;
#pragma unroll 2
    for (; k + 4 <= depth; k += 4) {
      Pack<T> left[S::kRows];
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) left[r] = pack_at(a + r * S::kStride + k);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const Pack<T> right = pack_at(b + (k + step) * S::kStride);
#pragma unroll
        for (int r = 0; r < S::kRows; ++r)
#pragma unroll
          for (int s = 0; s < 4; ++s) sum[r][s] += left[r].at[step] * right.at[s];
      }
    }
    for (; k < depth; ++k) {
      const Pack<T> right = pack_at(b + k * S::kStride);
#pragma unroll
      for (int r = 0; r < S::kRows; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s) sum[r][s] += a[r * S::kStride + k] * right.at[s];
    }
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      Pack<T>& to = pack_at(c + (i + r) * S::kStride + j);
#pragma unroll
      for (int s = 0; s < 4; ++s) to.at[s] = sum[r][s];
    }
  }
  squad.sync();
}

/// One thread's entries of a matrix on their way from global to shared memory. They wait in registers, so
/// that several matrices can be under way at once.
template <typename T, int N>
struct Fetched {
  using S = Squad<T, N>;
  static constexpr int kStep = S::kThreads / N;
  T entry[N / kStep];

  /// body(entry, i, j) for each.
  template <typename Body>
  __device__ __forceinline__ void for_each(const S& squad, const Body& body) {
    const int j = squad.thread % N;
#pragma unroll
    for (int e = 0; e < N / kStep; ++e) {
      const int i = squad.thread / N + e * kStep;
      if (i < squad.n && j < squad.n) body(entry[e], i, j);
    }
  }
};

template <typename T, int N>
__device__ __forceinline__ Fetched<T, N> fetch(const Squad<T, N>& squad, Matrices<const T> from) {
  const T* const source = from[squad.index];
  Fetched<T, N> all;
  all.for_each(squad, [&](T& entry, int i, int j) { entry = source[i * from.row_stride + j]; });
  return all;
}

/// Reads the lower triangle alone.
template <typename T, int N>
__device__ __forceinline__ Fetched<T, N> fetch_lower(const Squad<T, N>& squad,
                                                     Matrices<const T> from) {
  const T* const source = from[squad.index];
  Fetched<T, N> all;
  all.for_each(squad, [&](T& entry, int i, int j) {
    if (j <= i) entry = source[i * from.row_stride + j];
  });
  return all;
}

template <typename T, int N>
__device__ __forceinline__ void put(const Squad<T, N>& squad, Fetched<T, N>& from, T* to) {
  from.for_each(squad, [&](T entry, int i, int j) { to[i * Squad<T, N>::kStride + j] = entry; });
}

template <typename T, int N>
__device__ __forceinline__ void put_transposed(const Squad<T, N>& squad, Fetched<T, N>& from,
                                               T* to) {
  from.for_each(squad, [&](T entry, int i, int j) { to[j * Squad<T, N>::kStride + i] = entry; });
}

/// The symmetric matrix whose lower triangle was fetched.
template <typename T, int N>
__device__ __forceinline__ void put_lower(const Squad<T, N>& squad, Fetched<T, N>& from, T* to) {
  constexpr int kStride = Squad<T, N>::kStride;
  from.for_each(squad, [&](T entry, int i, int j) {
    if (j <= i) to[i * kStride + j] = to[j * kStride + i] = entry;
  });
}

/// a <- (a + a^T) / 2.
template <typename T, int N>
__device__ void symmetrise(const Squad<T, N>& squad, T* a) {
  constexpr int kStride = Squad<T, N>::kStride;
  squad.template for_each_entry<4>([&](int i, int j) {
    if (j < i)
      a[i * kStride + j] = a[j * kStride + i] = mean(a[i * kStride + j], a[j * kStride + i]);
  });
  squad.sync();
}

/// The matrix in global memory = (a + a^T) / 2.
template <typename T, int N>
__device__ void store_symmetric(const Squad<T, N>& squad, const T* a, Matrices<T> to) {
  constexpr int kStride = Squad<T, N>::kStride;
  if (!squad.exists) return;
  T* const target = to[squad.index];
  squad.template for_each_entry<4>([&](int i, int j) {
    target[i * to.row_stride + j] =
        i == j ? a[i * kStride + i] : mean(a[i * kStride + j], a[j * kStride + i]);
  });
}

/// c <- V^T sym(c) V, v = V and u = V^T, p for the product in between.
template <typename T, int N>
__device__ void into_basis(const Squad<T, N>& squad, const T* v, const T* u, T* c, T* p) {
  symmetrise(squad, c);
  multiply(squad, squad.n, c, v, p);
  multiply(squad, squad.n, u, p, c);
}

/// a <- V a V^T, by way of p.
template <typename T, int N>
__device__ void out_of_basis(const Squad<T, N>& squad, const T* v, const T* u, T* a, T* p) {
  multiply(squad, squad.n, a, u, p);
  multiply(squad, squad.n, v, p, a);
}

/// Calls body(std::integral_constant<int, N>) with the smallest N that n <= kLargest fits in.
template <typename Body>
auto by_size(std::int64_t n, const Body& body) {
  if (n <= 16) return body(std::integral_constant<int, 16>{});
  if (n <= 32) return body(std::integral_constant<int, 32>{});
  return body(std::integral_constant<int, 64>{});
}

template <typename T, int N, typename Own>
inline constexpr int kBytesOf = int(sizeof(Own)) * Squad<T, N>::kSquads;

/// Whether a block of this device holds matrices of that size, with a MEMORY for each.
template <typename T, template <typename, int> typename MEMORY>
bool fits(std::int64_t n) {
  return n <= kLargest && by_size(n, [](auto size) {
           constexpr int N = decltype(size)::value;
           return fits_a_block(kBytesOf<T, N, MEMORY<T, N>>);
         });
}

/// The blocks of a kernel of one Squad<T, N> a matrix.
template <typename T, int N>
unsigned blocks_for(std::int64_t batch) {
  return unsigned((batch + Squad<T, N>::kSquads - 1) / Squad<T, N>::kSquads);
}

/// Queues such a kernel, each squad with an `Own` of shared memory.
template <typename T, int N, typename Own, typename... Parameters>
void launch(const char* operation, void (*kernel)(Parameters...), std::int64_t batch,
            const Stream& stream, std::type_identity_t<Parameters>... arguments) {
  constexpr int bytes = kBytesOf<T, N, Own>;
  static_assert(bytes <= 227 * 1024);
  allow_shared_memory(operation, kernel, bytes);
  kernel<<<blocks_for<T, N>(batch), Squad<T, N>::kBlock, bytes, native(stream)>>>(arguments...);
  check_launch(operation);
}

/// The same for a kernel that awaits the one before by itself: early_start.cuh.
template <typename T, int N, typename Own, typename... Parameters>
void launch_early(const char* operation, void (*kernel)(Parameters...), std::int64_t batch,
                  const Stream& stream, const std::type_identity_t<Parameters>&... arguments) {
  constexpr int bytes = kBytesOf<T, N, Own>;
  static_assert(bytes <= 227 * 1024);
  allow_shared_memory(operation, kernel, bytes);
  check(operation,
        cuda::launch_early(kernel, blocks_for<T, N>(batch), unsigned(Squad<T, N>::kBlock), bytes,
                           native(stream), arguments...));
}

}  // namespace keel::cuda::small
