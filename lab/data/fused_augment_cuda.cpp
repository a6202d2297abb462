#include "lab/data/fused_augment.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "lab/data/fused_augment_kernels.h"

namespace keel::lab {

using torch::Tensor;

bool fuses_augment(const Tensor& pixels, const Tensor& indices) {
  return pixels.is_cuda() && pixels.is_contiguous() && indices.is_cuda() && indices.is_contiguous();
}

Tensor fused_augment(const Tensor& pixels, const Tensor& indices, const Tensor& epoch,
                     std::int64_t key, const AugmentOptions& options) {
  const c10::cuda::CUDAGuard device(pixels.device());
  const Tensor images = torch::empty(
      {indices.size(0), 3, pixels.size(2), pixels.size(3)}, pixels.options().dtype(torch::kFloat),
      options.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  cuda::Augmentation task;
  task.pixels = pixels.data_ptr<std::uint8_t>();
  task.indices = indices.data_ptr<std::int64_t>();
  task.epoch = epoch.data_ptr<std::int64_t>();
  task.count = indices.size(0);
  task.height = pixels.size(2);
  task.width = pixels.size(3);
  task.key = key;
  task.padding = options.padding;
  task.flip = options.flip;
  task.channels_last = options.channels_last;
  for (std::size_t c = 0; c < 3; ++c) {
    task.factor[c] = float(1 / (255 * options.deviation[c]));
    task.offset[c] = float(-options.mean[c] / options.deviation[c]);
  }
  task.images = images.data_ptr<float>();
  C10_CUDA_CHECK(cuda::augment(task, c10::cuda::getCurrentCUDAStream().stream()));
  return images;
}

}  // namespace keel::lab
