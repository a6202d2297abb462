#pragma once

// Restores orthonormality. cuSOLVER's batched solver in float64 returned vectors of the all-ones
// matrix, n = 256, with |V^T V - I| = 1e-6. Newton's iteration for the polar factor,
//     v_i - sum_j (v_i . v_j - [i = j]) v_j / 2,
// squares this error. The overlap of vectors of different eigenvalues is bounded by their
// residuals, so the residuals do not grow.
//
// V^T V takes n^3 operations, a tenth of the whole decomposition of a large matrix. There it is first tried on a few
// vectors of random signs: an error of a single pair of vectors shows in each of them.

#include <cmath>
#include <limits>

#include "cuda/matrix/large.cuh"
#include "cuda/threads.cuh"

namespace keel::cuda {

inline constexpr int kOrthogonalityRounds = 3;
inline constexpr int kProbes = 4, kProbeWarps = 8;
/// From here on the probes come first.
inline constexpr std::int64_t kLeastProbed = 512;

/// Number i of the random vectors: their signs are different bits of it.
__device__ inline unsigned probe_bits(unsigned i) {
  i = (i ^ i >> 16) * 0x7feb352du;
  i = (i ^ i >> 15) * 0x846ca68bu;
  return i ^ i >> 16;
}
template <typename T>
__device__ T signed_by(unsigned bits, int probe, T x) {
  return bits >> probe & 1 ? -x : x;
}

/// The products of rows^T with each of the random vectors, `out` n x kProbes per matrix. A block has 32 columns.
template <typename T>
__global__ void __launch_bounds__(32 * kProbeWarps)
    probe_columns(Matrices<const T> rows, int tiles, T* out) {
  __shared__ T part[kProbeWarps][kProbes][32];
  const std::int64_t b = blockIdx.x / unsigned(tiles);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, n = int(rows.n);
  const int column = int(blockIdx.x % unsigned(tiles)) * 32 + lane, near = min(column, n - 1);
  const T* const own = rows[b] + near;
  T sum[kProbes]{};
#pragma unroll 8
  for (int i = warp; i < n; i += kProbeWarps) {
    const T x = own[i * rows.row_stride];
    const unsigned bits = probe_bits(unsigned(i));
#pragma unroll
    for (int k = 0; k < kProbes; ++k) sum[k] += signed_by(bits, k, x);
  }
#pragma unroll
  for (int k = 0; k < kProbes; ++k) part[warp][k][lane] = sum[k];
  __syncthreads();
  if (warp >= kProbes || column >= n) return;
  T all = 0;
#pragma unroll
  for (int w = 0; w < kProbeWarps; ++w) all += part[w][warp][lane];
  out[(b * n + column) * kProbes + warp] = all;
}

/// Marks the matrices for which rows (rows^T w) is not w, for one of the random vectors. A warp per row.
template <typename T>
__global__ void __launch_bounds__(32 * kProbeWarps)
    probe_rows(Matrices<const T> rows, const T* products, T tolerance, int* found) {
  const std::int64_t at = std::int64_t(blockIdx.x) * kProbeWarps + threadIdx.x / 32, n = rows.n,
                     b = at / n, i = at % n;
  if (b >= rows.batch) return;
  const int lane = int(threadIdx.x) % 32;
  const T *const own = rows[b] + i * rows.row_stride, *const factor = products + b * n * kProbes;
  T sum[kProbes]{};
#pragma unroll 4
  for (std::int64_t c = lane; c < n; c += 32)
#pragma unroll
    for (int k = 0; k < kProbes; ++k) sum[k] += own[c] * factor[c * kProbes + k];
  const unsigned bits = probe_bits(unsigned(i));
  bool off = false;
#pragma unroll
  for (int k = 0; k < kProbes; ++k)
    off = off || !(fabs(Lanes<32>::sum(sum[k]) - signed_by(bits, k, T(1))) <= tolerance);
  if (off && lane == 0) found[b] = 1;
}

/// The matrices that the round before has changed, or all.
struct MarkedMatrices {
  const int* marks;  ///< null: all
  __device__ bool operator()(std::int64_t b) const { return marks == nullptr || marks[b] != 0; }
};

/// From rows rows^T to the defect: subtracts I, and marks a matrix if more than rounding remains.
template <typename T>
struct FindDefect {
  MarkedMatrices before;
  T tolerance;
  Matrices<T> product;
  int* found;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (!before(b)) return;
    T& x = product[b][i * product.row_stride + j];
    if (i == j) x -= 1;
    if (!(fabs(x) <= tolerance)) found[b] = 1;
  }
};

/// rows -= defect rows / 2
template <typename T>
struct MendRows {
  MarkedMatrices marked;
  Matrices<T> product, rows;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (marked(b)) rows[b][i * rows.row_stride + j] -= product[b][i * product.row_stride + j] / 2;
  }
};

/// Makes the rows of the matrices orthonormal to rounding. Matrices that already are stay unchanged.
template <typename T>
void restore_orthogonality(const char* operation, Matrices<T> rows, const Stream& stream) {
  using namespace large;
  const std::int64_t batch = rows.batch, n = rows.n;
  const Scratch<T> defects(operation, stream, batch * n * n),
      products(operation, stream, batch * n * n);
  const Scratch<int> found(operation, stream, (kOrthogonalityRounds + 1) * batch);
  check(operation,
        cudaMemsetAsync(found, 0, sizeof(int) * std::size_t((kOrthogonalityRounds + 1) * batch),
                        native(stream)));
  const auto defect = contiguous<T>(defects, batch, n), product = contiguous<T>(products, batch, n);
  const Plain<T> all_rows{rows};
  const T tolerance = 2 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
  MarkedMatrices before{nullptr};
  if (n >= kLeastProbed) {
    int* const marks = found + kOrthogonalityRounds * batch;
    const auto tiles = int((n + 31) / 32);
    const Matrices<const T> given = rows;
    constexpr int kThreadsOfProbe = 32 * kProbeWarps;
    probe_columns<T>
        <<<unsigned(batch * tiles), kThreadsOfProbe, 0, native(stream)>>>(given, tiles, products);
    check_launch(operation);
    probe_rows<T><<<unsigned((batch * n + kProbeWarps - 1) / kProbeWarps), kThreadsOfProbe, 0,
                    native(stream)>>>(given, products, 4 * tolerance, marks);
    check_launch(operation);
    before = {marks};
  }
  for (int round = 0; round < kOrthogonalityRounds; ++round) {
    int* const marks = found + round * batch;
    const MarkedMatrices marked{marks};
    multiply<true>(operation, stream, all_rows, Transposed<T>{rows}, defect, before);
    for_each_entry(operation, stream, batch, n, FindDefect<T>{before, tolerance, defect, marks});
    multiply(operation, stream, Plain<T>{defect}, all_rows, product, marked);
    for_each_entry(operation, stream, batch, n, MendRows<T>{marked, product, rows});
    before = marked;
  }
}

}  // namespace keel::cuda
