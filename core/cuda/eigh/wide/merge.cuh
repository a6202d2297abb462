#pragma once

// One level of divide and conquer: joins pairs of adjacent pieces of `half` rows each, all pairs at
// once. There are four kernels, because each needs all results of the previous one: sort and
// deflate the poles (one block per merge); find the roots; find the weights that fit them; and
// compute the columns of the matrix that maps the old vectors to the new ones (many blocks each).
// The arithmetic is in formulas/secular.h and eigh/block/divide.cuh.

#include "cuda/eigh/block/divide.cuh"
#include "cuda/eigh/wide/parts.cuh"
#include "cuda/threads.cuh"
#include "formulas/order.h"

namespace keel::cuda {

/// Rows [base, base + count) of the matrix, joined at `seam`. The second piece may be empty.
struct WideMergePlace {
  int base, count, seam;
  __device__ WideMergePlace(int n, int half, int which)
      : base(2 * half * which), count(min(2 * half, n - base)), seam(min(base + half, n)) {}
};

inline constexpr int kWidePrepareThreads = 512;

template <typename T>
std::int64_t wide_prepare_bytes(int half) {
  return std::int64_t(2 * half) * (4 * sizeof(T) + 2 * sizeof(int)) +
         (kWidePrepareThreads / 32 + 2 * half / 32) * std::int64_t(sizeof(int));
}

/// Numbers the places i < count with chosen(i), and calls put(i, the number of chosen places before
/// i, whether i is chosen). Returns their number. `counts`: shared memory, one entry per warp.
template <typename Chosen, typename Put>
__device__ __forceinline__ int number_chosen(int count, int* counts, const Chosen& chosen,
                                             const Put& put) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  int all = 0;
  for (int begin = 0; begin < count; begin += kWidePrepareThreads) {
    const int i = begin + int(threadIdx.x);
    const bool is = i < count && chosen(i);
    const unsigned mask = __ballot_sync(0xffffffffu, is);
    if (lane == 0) counts[warp] = __popc(mask);
    __syncthreads();
    int before = all + __popc(mask & ((1u << lane) - 1));
    for (int other = 0; other < kWidePrepareThreads / 32; ++other) {
      before += other < warp ? counts[other] : 0;
      all += counts[other];
    }
    if (i < count) put(i, before, is);
    __syncthreads();
  }
  return all;
}

/// Sorts the poles and deflates: sets aside those that the update does not move, and, if two of the
/// others are too close to tell apart, removes one of them by a rotation.
template <typename T>
__global__ void __launch_bounds__(kWidePrepareThreads)
    wide_prepare_kernel(WideShape shape, int half, bool merged_before, unsigned char* memory,
                        std::int64_t bytes, const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.y]) return;
  // The whole matrix has unit size. Below this bound a part of it is negligible, and squares would
  // underflow.
  constexpr T tiny = kEpsilon<T> * kEpsilon<T>;
  const WideParts<T> parts(memory + std::int64_t(blockIdx.y) * bytes, shape.stride);
  const WideMergePlace m(shape.n, half, int(blockIdx.x));
  const int thread = int(threadIdx.x);
  T* const value = reinterpret_cast<T*>(shared_memory());
  T* const sorted_value = value + 2 * half;
  T* const sorted_weight = sorted_value + 2 * half;
  T* const weight = sorted_weight + 2 * half;
  int* const index = reinterpret_cast<int*>(weight + 2 * half);
  int* const source = index + 2 * half;
  int* const counts = source + 2 * half;
  unsigned* const close = reinterpret_cast<unsigned*>(counts + kWidePrepareThreads / 32);
  const T* const vectors = merged_before ? parts.merged : parts.vectors;
  const int first = m.seam - m.base;  // the number of rows in the first piece
  const bool joined = m.seam < m.base + m.count;
  const T link = joined ? parts.coupling[m.seam - 1] : T(0);
  const T rho = 2 * fabs(link), sign = copysign(T(1), link);
  for (int i = thread; i < m.count; i += kWidePrepareThreads) {
    index[i] = parts.sorted[m.base + i];
    value[i] = parts.value[index[i]];
  }
  __syncthreads();
  T size = fmax(rho, fmax(fabs(value[0]), fabs(value[first - 1])));
  if (joined) size = fmax(size, fmax(fabs(value[first]), fabs(value[m.count - 1])));
  const T tolerance = fmax(2 * kEpsilon<T> * size, tiny);
  for (int i = thread; i < m.count; i += kWidePrepareThreads) {
    // Find its rank among the other piece's values, which are sorted. Of equal values, those of the
    // first piece come first.
    const bool upper = i >= first;
    int low = upper ? 0 : first, high = upper ? first : m.count;
    const int begin = low;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (value[middle] < value[i] || (upper && value[middle] == value[i]))
        low = middle + 1;
      else
        high = middle;
    }
    const int at = (upper ? i - first : i) + low - begin, j = index[i];
    T z = 0;
    if (joined)
      z = T(0.70710678118654752) * (j < m.seam
                                        ? vectors[std::int64_t(j) * shape.stride + m.seam - 1]
                                        : sign * vectors[std::int64_t(j) * shape.stride + m.seam]);
    sorted_value[at] = value[i];
    sorted_weight[at] = z;
    source[at] = rho * fabs(z) > tolerance ? j : ~j;
  }
  __syncthreads();

  // Compact those that move: pole, weight, index.
  T* const pole = value;
  const int alive = number_chosen(
      m.count, counts, [&](int i) { return source[i] >= 0; },
      [&](int i, int before, bool moves) {
        if (moves) {
          pole[before] = sorted_value[i];
          weight[before] = sorted_weight[i];
          index[before] = source[i];
        } else {
          parts.dropped_pole[m.base + i - before] = sorted_value[i];
          parts.dropped_source[m.base + i - before] = ~source[i];
        }
      });
  bool any_close = false;
  for (int begin = 0; begin < alive; begin += kWidePrepareThreads) {
    const int i = begin + thread;
    bool is = false;
    if (i + 1 < alive) {
      const T x = weight[i], y = weight[i + 1];
      is = fabs((pole[i + 1] - pole[i]) * x * y) <= tolerance * (x * x + y * y);
    }
    const unsigned mask = __ballot_sync(0xffffffffu, is);
    if (thread % 32 == 0 && i < alive) close[i / 32] = mask;
    any_close = any_close || is;
  }
  int dropped = m.count - alive, rotations = 0;
  if (__syncthreads_or(any_close)) {
    // One thread does this, and visits only close pairs.
    for (int word = 0, from = 0; thread == 0 && 32 * word < alive; ++word)
      for (unsigned rest = close[word]; rest != 0; rest &= rest - 1) {
        int kept = 32 * word + __ffs(int(rest)) - 1;
        if (kept < from) continue;  // already handled with the previous pair
        for (from = kept + 1; from < alive; kept = from++) {
          if (!drop_if_close(tolerance, pole[kept], weight[kept], index[kept], pole[from],
                             weight[from], index[from], parts.dropped_pole[m.base + dropped],
                             parts.rotation[m.base + rotations]))
            break;
          parts.dropped_source[m.base + dropped++] = index[kept];
          index[kept] = -1;
          ++rotations;
        }
      }
    __syncthreads();
  }
  const int moved = number_chosen(
      alive, counts, [&](int i) { return index[i] >= 0; },
      [&](int i, int before, bool stays) {
        if (!stays) return;
        parts.pole[m.base + before] = pole[i];
        parts.weight[m.base + before] = weight[i];
        parts.source[m.base + before] = index[i];
      });
  if (thread == 0) parts.merge[m.base] = {rho, moved, rotations};
}

/// The threads of a warp that share a root.
inline constexpr int kRootLanes = 16;
using RootLanes = Lanes<kRootLanes>;

inline constexpr int kWideRootThreads = 256;
/// The number of roots that a block finds.
inline constexpr int kWideRoots = kWideRootThreads / kRootLanes;

template <typename T>
std::int64_t wide_root_bytes(int half) {
  return std::int64_t(2 * half) * (4 * sizeof(T) + sizeof(int));
}

template <typename T>
__global__ void __launch_bounds__(kWideRootThreads)
    wide_roots_kernel(WideShape shape, int half, unsigned char* memory, std::int64_t bytes,
                      const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.z]) return;
  const WideParts<T> parts(memory + std::int64_t(blockIdx.z) * bytes, shape.stride);
  const WideMergePlace m(shape.n, half, int(blockIdx.y));
  const WideMerge<T> merge = parts.merge[m.base];
  const int begin = int(blockIdx.x) * kWideRoots;
  if (begin >= merge.alive) return;
  T* const pole = reinterpret_cast<T*>(shared_memory());
  T* const weight = pole + 2 * half;
  for (int i = int(threadIdx.x); i < merge.alive; i += kWideRootThreads) {
    pole[i] = parts.pole[m.base + i];
    weight[i] = parts.weight[m.base + i];
  }
  __syncthreads();
  const RootLanes lanes;
  const int i = begin + int(threadIdx.x) / kRootLanes;
  const bool active = i < merge.alive;
  const SecularRoot<T> root =
      secular_root(lanes, active, merge.alive, min(i, merge.alive - 1), static_cast<const T*>(pole),
                   static_cast<const T*>(weight), merge.rho);
  if (!active || lanes.lane() != 0) return;
  parts.origin[m.base + i] = root.origin;
  parts.offset[m.base + i] = root.offset;
}

/// Computes the weights that fit the roots, and the merged values and their order.
template <typename T>
__global__ void __launch_bounds__(kWideRootThreads)
    wide_weights_kernel(WideShape shape, int half, unsigned char* memory, std::int64_t bytes,
                        const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.z]) return;
  const WideParts<T> parts(memory + std::int64_t(blockIdx.z) * bytes, shape.stride);
  const WideMergePlace m(shape.n, half, int(blockIdx.y));
  const int begin = int(blockIdx.x) * kWideRoots;
  if (begin >= m.count) return;
  const int alive = parts.merge[m.base].alive;
  T* const pole = reinterpret_cast<T*>(shared_memory());
  T* const weight = pole + 2 * half;
  T* const offset = weight + 2 * half;
  T* const value = offset + 2 * half;
  int* const origin = reinterpret_cast<int*>(value + 2 * half);
  for (int i = int(threadIdx.x); i < m.count; i += kWideRootThreads) {
    if (i < alive) {
      pole[i] = parts.pole[m.base + i];
      weight[i] = parts.weight[m.base + i];
      offset[i] = parts.offset[m.base + i];
      origin[i] = parts.origin[m.base + i];
      value[i] = parts.pole[m.base + origin[i]] + offset[i];
    } else {
      value[i] = parts.dropped_pole[m.base + i - alive];
    }
  }
  __syncthreads();
  const RootLanes lanes;
  const int i = begin + int(threadIdx.x) / kRootLanes;
  const bool exists = i < m.count;
  const T own = exists ? value[i] : T(0);
  const int place =
      lanes.sum(count_before<false>(value, m.count, i, own, lanes.lane(), RootLanes::lanes()));
  T refined = 0;
  if (alive > 0)
    refined = secular_weight(lanes, alive, min(i, alive - 1), static_cast<const T*>(pole),
                             static_cast<const T*>(weight), static_cast<const int*>(origin),
                             static_cast<const T*>(offset));
  if (!exists || lanes.lane() != 0) return;
  if (i < alive) parts.refined[m.base + i] = refined;
  parts.value[m.base + i] = own;
  parts.sorted[m.base + place] = m.base + i;
}

inline constexpr int kWideUpdateColumns = 4;  ///< per block, one warp each

template <typename T>
std::int64_t wide_update_bytes(int half) {
  return std::int64_t(kWideUpdateColumns) * 2 * half * sizeof(T);
}

template <typename T>
__global__ void __launch_bounds__(32 * kWideUpdateColumns)
    wide_update_kernel(WideShape shape, int half, unsigned char* memory, std::int64_t bytes,
                       const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.z]) return;
  const WideParts<T> parts(memory + std::int64_t(blockIdx.z) * bytes, shape.stride);
  const WideMergePlace m(shape.n, half, int(blockIdx.y));
  const Lanes<32> lanes;  // a warp shares a column of the update
  const int warp = int(threadIdx.x) / 32;
  const int i = int(blockIdx.x) * kWideUpdateColumns + warp, j = m.base + i;
  if (i >= m.count) return;
  const WideMerge<T> found = parts.merge[m.base];
  Merge<T> merge;
  merge.base = m.base;
  merge.count = m.count;
  merge.seam = m.seam;
  merge.rho = found.rho;
  merge.sign = 1;
  merge.alive = found.alive;
  merge.rotations = found.rotations;
  T* const column = reinterpret_cast<T*>(shared_memory()) + warp * 2 * half;
  for (int k = lanes.lane(); k < m.count; k += 32) column[k] = 0;
  SecularRoot<T> root{0, 0};
  if (i < merge.alive) root = {parts.origin[j], parts.offset[j]};
  __syncwarp();
  fill_update_column(lanes, merge, j, true, root, parts, column - m.base, 1);
  __syncwarp();
  T* const target = parts.update + std::int64_t(j) * shape.stride + m.base;
  for (int k = lanes.lane(); k < m.count; k += 32) target[k] = column[k];
}

}  // namespace keel::cuda
