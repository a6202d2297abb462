#include "keel/weight_backward.h"

#include "cuda/launch/launch.h"
#include "cuda/threads.cuh"
#include "instantiate.h"
#include "weight_backward_check.h"

namespace keel::cuda {
namespace {

constexpr int kTile = 32, kWarps = 8;

/// One block per group and tile. Each warp computes a row of the tile for dL_dweight and
/// dL_dlayer_matrix. For dL_dmean each lane computes a column. Its rows are distributed over the
/// warps, whose sums are added in a fixed order.
template <typename T>
__global__ void weight_backward_kernel(const T* weight, Matrices<const T> layer_matrix,
                                       const T* sum, Matrices<const T> cross, T* dL_dweight,
                                       T* dL_dmean, Matrices<T> dL_dlayer_matrix,
                                       Matrices<T> matrix, int tiles) {
  __shared__ T column_sums[kWarps][kTile];
  const int d = int(layer_matrix.n), lane = threadIdx.x, warp = threadIdx.y;
  const std::int64_t g = blockIdx.x / unsigned(tiles);
  const int first = int(blockIdx.x % unsigned(tiles)) * kTile;
  const T* const s = layer_matrix[g];
  const T* const p = cross[g];
  T* const out = dL_dlayer_matrix.data != nullptr ? dL_dlayer_matrix[g] : nullptr;
  T* const scaled = matrix.data != nullptr ? matrix[g] : nullptr;

  for (int i = first + warp; i < min(first + kTile, d); i += kWarps) {
    const T factor = weight ? weight[g * d + i] : T(1);
    T product = 0;
    for (int j = lane; j < d; j += kTile) {
      const T entry = p[i * cross.row_stride + j], own = s[i * layer_matrix.row_stride + j];
      product += entry * own;
      if (out != nullptr) out[i * dL_dlayer_matrix.row_stride + j] = factor * entry;
      if (scaled != nullptr) scaled[i * matrix.row_stride + j] = factor * own;
    }
    product = warp_sum(product);
    if (lane == 0 && dL_dweight != nullptr) dL_dweight[g * d + i] = product;
  }
  if (dL_dmean == nullptr) return;

  const int column = first + lane;
  T along = 0;
  if (column < d)
    for (int i = warp; i < d; i += kWarps) {
      const T factor = weight ? weight[g * d + i] : T(1);
      along += factor * sum[g * d + i] * s[i * layer_matrix.row_stride + column];
    }
  column_sums[warp][lane] = along;
  __syncthreads();
  if (warp == 0 && column < d) {
    T total = 0;
    for (int w = 0; w < kWarps; ++w) total += column_sums[w][lane];
    dL_dmean[g * d + column] = -total;
  }
}

}  // namespace

template <typename T>
void weight_backward(const T* weight, Matrices<const T> layer_matrix, const T* sum,
                     Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                     Matrices<T> dL_dlayer_matrix, Matrices<T> matrix, const Stream& stream) {
  constexpr const char* kOperation = "keel::weight_backward";
  check_weight_backward(kOperation, layer_matrix, sum, cross, dL_dmean, dL_dlayer_matrix, matrix);
  if (layer_matrix.batch == 0 || layer_matrix.n == 0) return;
  const std::int64_t tiles = (layer_matrix.n + kTile - 1) / kTile;
  weight_backward_kernel<T>
      <<<unsigned(layer_matrix.batch * tiles), dim3(kTile, kWarps), 0, native(stream)>>>(
          weight, layer_matrix, sum, cross, dL_dweight, dL_dmean, dL_dlayer_matrix, matrix,
          int(tiles));
  check_launch(kOperation);
}

#define KEEL_STAGES(T) KEEL_STAGE(weight_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
