#include <cuda_bf16.h>

#include <algorithm>

#include "lab/train/fused_step_kernels.h"

namespace keel::lab::cuda {
namespace {

using Index = std::int64_t;

constexpr int kThreads = 256;
constexpr int kChunk = 4096;  ///< numbers per block
constexpr int kPieces = 96;   ///< pieces per launch; fits the 4 KB limit on kernel arguments

struct Pieces {
  const void* from[kPieces];
  Index begin[kPieces], size[kPieces];  ///< position in the buffer
  unsigned first_block[kPieces];
  bool bfloat16[kPieces];
  int count;
};

__device__ float widened(unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }
__device__ float widened(float x) { return x; }

/// 0 if x is finite, otherwise NaN.
__device__ float without_finite(float x) { return x - x; }

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

/// Copies one chunk to float32 and returns whether all its numbers are finite.
template <typename T>
__device__ bool copied(const T* from, float* to, int size) {
  bool finite = true;
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Four<T>) == 0 &&
                       reinterpret_cast<std::uintptr_t>(to) % sizeof(float4) == 0;
  const int fours = aligned ? size / 4 : 0;
#pragma unroll 4
  for (int i = int(threadIdx.x); i < fours; i += kThreads) {
    const Four<T> x = reinterpret_cast<const Four<T>*>(from)[i];
    const float4 y{widened(x.values[0]), widened(x.values[1]), widened(x.values[2]),
                   widened(x.values[3])};
    reinterpret_cast<float4*>(to)[i] = y;
    finite = finite && without_finite(y.x) == 0 && without_finite(y.y) == 0 &&
             without_finite(y.z) == 0 && without_finite(y.w) == 0;
  }
  for (int i = 4 * fours + int(threadIdx.x); i < size; i += kThreads) {
    to[i] = widened(from[i]);
    finite = finite && without_finite(to[i]) == 0;
  }
  return finite;
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ Pieces pieces, float* gradients, unsigned* not_finite) {
  int low = 0, high = pieces.count - 1;  // find the last piece that starts at or before this block
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (pieces.first_block[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  const Index skipped = Index(blockIdx.x - pieces.first_block[low]) * kChunk;
  const int size = int(min(Index(kChunk), pieces.size[low] - skipped));
  float* const to = gradients + pieces.begin[low] + skipped;
  const bool finite =
      pieces.bfloat16[low]
          ? copied(static_cast<const unsigned short*>(pieces.from[low]) + skipped, to, size)
          : copied(static_cast<const float*>(pieces.from[low]) + skipped, to, size);
  // Several blocks may write this, all the same value.
  if (!finite) *not_finite = 1;
}

__device__ void descend_one(const Descent& task, float rate, float g, float& p, float& m) {
  // Rounds as torch does: add is a fused multiply-add, addcmul rounds the product first.
  if (task.weight_decay != 0) g = __fmaf_rn(task.weight_decay, p, g);
  m = __fmaf_rn(task.momentum, m, g);
  p = __fsub_rn(p, __fmul_rn(m, rate));
}

__global__ void __launch_bounds__(kThreads) descend_kernel(Descent task) {
  const float rate = *task.rate;
  if (isnan(rate)) return;
  auto* const narrow = static_cast<__nv_bfloat16*>(task.bfloat16_values);
  const Index fours = task.size / 4, i = Index(blockIdx.x) * kThreads + threadIdx.x;
  if (i < fours) {
    const float4 g = reinterpret_cast<const float4*>(task.gradients)[i];
    float4 p = reinterpret_cast<const float4*>(task.values)[i];
    float4 m = reinterpret_cast<const float4*>(task.momenta)[i];
    descend_one(task, rate, g.x, p.x, m.x);
    descend_one(task, rate, g.y, p.y, m.y);
    descend_one(task, rate, g.z, p.z, m.z);
    descend_one(task, rate, g.w, p.w, m.w);
    reinterpret_cast<float4*>(task.values)[i] = p;
    reinterpret_cast<float4*>(task.momenta)[i] = m;
    if (narrow != nullptr)
      reinterpret_cast<Four<__nv_bfloat16>*>(narrow)[i] = {
          __float2bfloat16_rn(p.x), __float2bfloat16_rn(p.y), __float2bfloat16_rn(p.z),
          __float2bfloat16_rn(p.w)};
  } else if (i < fours + task.size % 4) {
    const Index k = 3 * fours + i;  // 4 fours + (i - fours)
    descend_one(task, rate, task.gradients[k], task.values[k], task.momenta[k]);
    if (narrow != nullptr) narrow[k] = __float2bfloat16_rn(task.values[k]);
  }
}

unsigned blocks_for(Index items, Index each) { return unsigned((items + each - 1) / each); }

}  // namespace

cudaError_t gather(const Piece* pieces, std::int64_t count, float* gradients, unsigned* not_finite,
                   cudaStream_t stream) {
  for (Index next = 0; next < count;) {
    Pieces some{};
    unsigned blocks = 0;
    for (; next < count && some.count < kPieces; ++next) {
      const Piece& piece = pieces[next];
      if (piece.size == 0) continue;
      const int k = some.count++;
      some.from[k] = piece.from;
      some.begin[k] = piece.begin;
      some.size[k] = piece.size;
      some.first_block[k] = blocks;
      some.bfloat16[k] = piece.bfloat16;
      blocks += blocks_for(piece.size, kChunk);
    }
    if (blocks == 0) continue;
    gather_kernel<<<blocks, kThreads, 0, stream>>>(some, gradients, not_finite);
  }
  return cudaGetLastError();
}

cudaError_t descend(const Descent& task, cudaStream_t stream) {
  const Index items = task.size / 4 + task.size % 4;
  if (items == 0) return cudaSuccess;
  descend_kernel<<<blocks_for(items, kThreads), kThreads, 0, stream>>>(task);
  return cudaGetLastError();
}

}  // namespace keel::lab::cuda
