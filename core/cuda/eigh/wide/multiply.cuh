#pragma once

// The merged vectors: each is a linear combination of the old vectors of its pieces, a row of the
// product update x vectors. A vector of one piece is zero in the rows of the other, so rows of the
// first piece need its vectors only.

#include "cuda/eigh/wide/merge.cuh"
#include "cuda/matrix/product.cuh"

namespace keel::cuda {

template <typename T>
__global__ void __launch_bounds__(ProductTile<T>::kThreads)
    wide_multiply_kernel(WideShape shape, int half, bool merged_before, unsigned char* memory,
                         std::int64_t bytes, const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.z]) return;
  using Tile = ProductTile<T>;
  constexpr int kDepth = Tile::kDepth;
  auto& s = *reinterpret_cast<Tile*>(shared_memory());
  const WideParts<T> parts(memory + std::int64_t(blockIdx.z) * bytes, shape.stride);
  const WideMergePlace m(shape.n, half, int(blockIdx.y));
  const int across = 2 * half / Tile::kSize;
  const int top = m.base + int(blockIdx.x) / across * Tile::kSize;     // vectors
  const int column = m.base + int(blockIdx.x) % across * Tile::kSize;  // their entries
  if (top >= m.base + m.count || column >= m.base + m.count) return;
  const int begin = column < m.base + half ? m.base : m.base + half;
  const int end = min(begin + half, shape.n);
  const std::int64_t stride = shape.stride;
  const T* const old = merged_before ? parts.merged : parts.vectors;
  T* const merged = merged_before ? parts.vectors : parts.merged;
  const int thread = int(threadIdx.x);
  // A thread loads four adjacent numbers of a row of each matrix.
  const int left_row = thread / 4, left_k = thread % 4 * 4;
  const int right_k = thread / 16, right_column = thread % 16 * 4;
  const T* const left_from = parts.update + (top + left_row) * stride + left_k;
  const T* const right_from = old + right_k * stride + column + right_column;
  Pack<T, 4> next_left, next_right;
  const auto fetch = [&](int k) {
    next_left = pack_at<4>(left_from + k);
    next_right = pack_at<4>(right_from + k * stride);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (k + left_k + e >= end) next_left.at[e] = 0;
      if (k + right_k >= end) next_right.at[e] = 0;
    }
  };
  const int row = s.row(), own_column = s.column();
  T sum[4][4] = {};
  fetch(begin);
  for (int k = begin; k < end; k += kDepth) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s.left[left_k + e][left_row] = next_left.at[e];
    pack_at<4>(&s.right[right_k][right_column]) = next_right;
    __syncthreads();
    if (k + kDepth < end) fetch(k + kDepth);
    s.add_to(sum);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Pack<T, 4> piece;
#pragma unroll
    for (int j = 0; j < 4; ++j) piece.at[j] = sum[i][j];
    pack_at<4>(merged + (top + row + i) * stride + column + own_column) = piece;
  }
}

}  // namespace keel::cuda
