#include "lab/data/crop.h"
#include "lab/data/fused_augment_kernels.h"

namespace keel::lab::cuda {
namespace {

using Index = std::int64_t;

constexpr int kThreads = 256;

/// One thread per pixel of the result.
__global__ void __launch_bounds__(kThreads) augment_kernel(Augmentation task) {
  const Index plane = task.height * task.width;
  const Index i = Index(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= task.count * plane) return;
  const Index image = i / plane, pixel = i % plane, source = task.indices[image];
  const Crop crop = crop_of(task.key, *task.epoch, source, task.padding, task.flip);
  const Index row = pixel / task.width + crop.down,
              column = crop.column(pixel % task.width, task.width);
  const bool inside = row >= 0 && row < task.height && column >= 0 && column < task.width;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    const float value =
        inside ? float(task.pixels[(source * 3 + c) * plane + row * task.width + column]) : 0;
    const Index to = task.channels_last ? i * 3 + c : (image * 3 + c) * plane + pixel;
    task.images[to] = __fadd_rn(__fmul_rn(value, task.factor[c]), task.offset[c]);
  }
}

}  // namespace

cudaError_t augment(const Augmentation& task, cudaStream_t stream) {
  const Index items = task.count * task.height * task.width;
  if (items == 0) return cudaSuccess;
  augment_kernel<<<unsigned((items + kThreads - 1) / kThreads), kThreads, 0, stream>>>(task);
  return cudaGetLastError();
}

}  // namespace keel::lab::cuda
