#include <algorithm>
#include <vector>

#include "cuda/eigh/sign.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/paths.h"
#include "instantiate.h"

// A tall matrix in slices of rows: A_p = U_p S_p V_p^T, all slices in one batch. On top of each other the n x n matrices
// B_p = U_p^T A_p are a shorter matrix with the same values and the same V. If its left vectors are W, those of A are
// U_p W_p. A wide matrix is the transpose of a tall one.
//
// B_p equals S_p V_p^T, whose rounding errors are relative to the largest value. Those of U_p^T A_p are relative to each
// column, so the values of steep columns keep their digits.

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";
constexpr int kThreads = 256;

/// How the m rows of each matrix are distributed: the first `longer` of `count` slices have `rows`, the others one less.
/// Scratch memory has those of all matrices first, and then the others.
struct Slices {
  std::int64_t batch, m, n, count, longer, rows;

  Slices(std::int64_t matrices, std::int64_t tall, std::int64_t small, std::int64_t most)
      : batch(matrices), m(tall), n(small), count(pieces(tall, most)), rows(pieces(tall, count)) {
    longer = m - count * (rows - 1);
  }
  __host__ __device__ std::int64_t rows_of(std::int64_t p) const { return rows - (p >= longer); }
  /// The first row of slice p in its matrix.
  __host__ __device__ std::int64_t first_row(std::int64_t p) const {
    return p * rows - (p > longer ? p - longer : 0);
  }
  /// The number of slice p of matrix b in scratch memory, and its first row there.
  __host__ __device__ std::int64_t number(std::int64_t b, std::int64_t p) const {
    return p < longer ? b * longer + p : batch * longer + b * (count - longer) + p - longer;
  }
  __host__ __device__ std::int64_t scratch_row(std::int64_t b, std::int64_t p) const {
    const std::int64_t at = number(b, p), of_longer = batch * longer;
    return at * rows - (at > of_longer ? at - of_longer : 0);
  }
};

/// Matrix b or its transpose.
template <typename T>
struct Upright {
  Rectangles<T> all;
  bool transposed;
  __device__ T& operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return transposed ? all[b][j * all.row_stride + i] : all[b][i * all.row_stride + j];
  }
};

/// Copies the slices into scratch memory. One block per slice, here and below.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    take_slices(Slices s, Upright<const T> matrices, T* slices) {
  const std::int64_t b = blockIdx.x / s.count, p = blockIdx.x % s.count, rows = s.rows_of(p),
                     first = s.first_row(p);
  T* const to = slices + s.scratch_row(b, p) * s.n;
  for (std::int64_t at = threadIdx.x; at < rows * s.n; at += kThreads) {
    const std::int64_t i = matrices.transposed ? at % rows : at / s.n,
                       j = matrices.transposed ? at / rows : at % s.n;
    to[i * s.n + j] = matrices(b, first + i, j);
  }
}

/// The matrix of all U_p^T A_p, by tiles of EDGE x EDGE. Long sums are added up from shorter ones.
template <typename T, int EDGE>
__global__ void __launch_bounds__(kThreads)
    stack_slices(Slices s, const T* slices, const T* left, Upright<T> stack) {
  constexpr int kRun = 32;
  const std::int64_t b = blockIdx.x / s.count, p = blockIdx.x % s.count,
                     begin = s.scratch_row(b, p);
  const int n = int(s.n), rows = int(s.rows_of(p)), across = pieces(n, EDGE);
  const T *const a = slices + begin * n, *const u = left + begin * n;
  for (int tile = int(threadIdx.x); tile < across * across; tile += kThreads) {
    const int top = tile / across * EDGE, first = tile % across * EDGE;
    T total[EDGE][EDGE]{};
    for (int run = 0; run < rows; run += kRun) {
      T sum[EDGE][EDGE]{};
      for (int i = run; i < min(run + kRun, rows); ++i) {
        T of_u[EDGE], of_a[EDGE];
#pragma unroll
        for (int e = 0; e < EDGE; ++e) {
          of_u[e] = u[std::int64_t(i) * n + min(top + e, n - 1)];
          of_a[e] = a[std::int64_t(i) * n + min(first + e, n - 1)];
        }
#pragma unroll
        for (int k = 0; k < EDGE; ++k)
#pragma unroll
          for (int j = 0; j < EDGE; ++j) sum[k][j] += of_u[k] * of_a[j];
      }
#pragma unroll
      for (int k = 0; k < EDGE; ++k)
#pragma unroll
        for (int j = 0; j < EDGE; ++j) total[k][j] += sum[k][j];
    }
#pragma unroll
    for (int k = 0; k < EDGE; ++k)
#pragma unroll
      for (int j = 0; j < EDGE; ++j)
        if (top + k < n && first + j < n) stack(b, p * n + top + k, first + j) = total[k][j];
  }
}

/// U_p W_p, and for each of its columns the entry of largest magnitude.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    join_vectors(Slices s, const T* slices, Upright<const T> stack, Upright<T> vectors,
                 LargestEntry<T>* largest) {
  extern __shared__ unsigned char shared[];
  T* const w = reinterpret_cast<T*>(shared);
  const std::int64_t b = blockIdx.x / s.count, p = blockIdx.x % s.count, rows = s.rows_of(p),
                     first = s.first_row(p);
  const int n = int(s.n);
  for (int e = int(threadIdx.x); e < n * n; e += kThreads) w[e] = stack(b, p * n + e / n, e % n);
  __syncthreads();
  const T* const from = slices + s.scratch_row(b, p) * n;
  for (std::int64_t at = threadIdx.x; at < rows * n; at += kThreads) {
    const std::int64_t i = vectors.transposed ? at % rows : at / n,
                       j = vectors.transposed ? at / rows : at % n;
    T sum = 0;
    for (int k = 0; k < n; ++k) sum += from[i * n + k] * w[k * n + j];
    vectors(b, first + i, j) = sum;
  }
  if (largest == nullptr) return;
  __syncthreads();
  for (int j = int(threadIdx.x) / 32; j < n; j += kThreads / 32) {
    LargestEntry<T> entry;
    for (std::int64_t i = threadIdx.x % 32; i < rows; i += 32)
      entry.offer(vectors(b, first + i, j), int(first + i));
    entry.share(32);
    if (threadIdx.x % 32 == 0) largest[std::int64_t(blockIdx.x) * n + j] = entry;
  }
}

/// Makes the largest entry of each left vector positive. One warp per vector finds it and changes the right vector.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    find_signs(Slices s, LargestEntry<T>* largest, Upright<T> right) {
  const std::int64_t at = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32, b = at / s.n,
                     j = at % s.n;
  const int lane = int(threadIdx.x) % 32;
  if (b >= s.batch) return;
  LargestEntry<T> entry;
  for (std::int64_t p = lane; p < s.count; p += 32) {
    const LargestEntry<T>& of_slice = largest[(b * s.count + p) * s.n + j];
    entry.offer(of_slice.entry, of_slice.row);
  }
  entry.share(32);
  for (std::int64_t k = lane; k < s.n; k += 32) right(b, j, k) = entry.with_sign(right(b, j, k));
  __syncwarp();
  if (lane == 0) largest[b * s.count * s.n + j] = entry;
}
template <typename T>
__global__ void __launch_bounds__(kThreads)
    set_signs(Slices s, const LargestEntry<T>* largest, Upright<T> vectors) {
  const std::int64_t b = blockIdx.x / s.count, p = blockIdx.x % s.count, first = s.first_row(p);
  for (std::int64_t at = threadIdx.x; at < s.rows_of(p) * s.n; at += kThreads) {
    T& x = vectors(b, first + at / s.n, at % s.n);
    x = largest[b * s.count * s.n + at % s.n].with_sign(x);
  }
}

/// A matrix with a slice that has not converged has not either.
__global__ void join_status(Slices s, const SvdStatus* of_slices, SvdStatus* status) {
  const std::int64_t b = blockIdx.x;
  bool failed = false;
  for (std::int64_t p = threadIdx.x; p < s.count; p += blockDim.x)
    failed = failed || of_slices[s.number(b, p)] == SvdStatus::not_converged;
  if (__syncthreads_or(failed) && threadIdx.x == 0 && status[b] == SvdStatus::converged)
    status[b] = SvdStatus::not_converged;
}

template <typename U>
Rectangles<U> part(const Rectangles<U>& all, std::int64_t first, std::int64_t count) {
  return {all[first], count, all.rows, all.columns, all.row_stride, all.batch_stride};
}

}  // namespace

template <typename T>
void svd_slices(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const Stream& stream) {
  const bool wide = matrices.rows < matrices.columns;
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns);
  const std::int64_t at_once = std::clamp<std::int64_t>(kGridNumbers / (m * n), 1, matrices.batch);
  const Slices most(at_once, m, n, slice_rows<T>(n, this_card()));
  const std::int64_t all = at_once * most.count, height = most.count * n;
  const Scratch<T> slices(kName, stream, at_once * m * n), left_of(kName, stream, at_once * m * n),
      values_of(kName, stream, all * n), right_of(kName, stream, all * n * n),
      stacked(kName, stream, all * n * n), joined(kName, stream, all * n * n);
  const Scratch<SvdStatus> status_of(kName, stream, all);
  const Scratch<LargestEntry<T>> largest(kName, stream, wide ? 0 : all * n);
  for (std::int64_t begin = 0; begin < matrices.batch; begin += at_once) {
    const std::int64_t count = std::min(at_once, matrices.batch - begin);
    const Slices s(count, m, n, slice_rows<T>(n, this_card()));
    const dim3 blocks(unsigned(count * s.count));
    launch(kName, take_slices<T>, {.blocks = blocks, .threads = kThreads}, stream, s,
           Upright<const T>{part(matrices, begin, count), wide}, slices);
    const std::int64_t of_longer = count * s.longer, shorter = count * (s.count - s.longer);
    const auto solve = [&](std::int64_t first, std::int64_t first_row, std::int64_t number,
                           std::int64_t rows) {
      if (number > 0)
        svd<T>(contiguous<const T>(slices + first_row * n, number, rows, n), values_of + first * n,
               contiguous<T>(left_of + first_row * n, number, rows, n),
               contiguous<T>(right_of + first * n * n, number, n, n), status_of + first, stream);
    };
    solve(0, 0, of_longer, s.rows);
    solve(of_longer, of_longer * s.rows, shorter, s.rows - 1);
    // A wide matrix' left vectors are those of the stack's transpose, and so are their signs.
    const auto stack = [&](T* data) {
      return wide ? contiguous(data, count, n, height) : contiguous(data, count, height, n);
    };
    by_size<16, 32, 64>(n, [&](auto size) {
      launch(kName, stack_slices<T, decltype(size)::value / 16>,
             {.blocks = blocks, .threads = kThreads}, stream, s, slices, left_of,
             Upright<T>{stack(stacked), wide});
    });
    const Rectangles<T> to_left = part(left, begin, count), to_right = part(right, begin, count);
    svd<T>(stack(stacked), values + begin * n, wide ? to_left : stack(joined),
           wide ? stack(joined) : to_right, status == nullptr ? nullptr : status + begin, stream);
    const Upright<T> vectors{wide ? to_right : to_left, wide};
    LargestEntry<T>* const found = largest;
    launch(kName, join_vectors<T>,
           {.blocks = blocks, .threads = kThreads, .bytes = n * n * std::int64_t(sizeof(T))},
           stream, s, left_of, Upright<const T>{stack(joined), wide}, vectors, found);
    if (!wide) {
      launch(
          kName, find_signs<T>,
          {.blocks = unsigned(pieces<std::int64_t>(count * n * 32, kThreads)), .threads = kThreads},
          stream, s, found, Upright<T>{to_right, false});
      launch(kName, set_signs<T>, {.blocks = blocks, .threads = kThreads}, stream, s, found,
             vectors);
    }
    if (status != nullptr)
      launch(kName, join_status, {.blocks = unsigned(count), .threads = kThreads}, stream, s,
             status_of, status + begin);
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_slices, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
