#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::lab::cuda {

/// augment() of lab/data/augment.h on raw pointers.
struct Augmentation {
  const std::uint8_t* pixels = nullptr;  ///< (N, 3, height, width)
  const std::int64_t *indices = nullptr, *epoch = nullptr;
  std::int64_t count = 0, height = 0, width = 0;  ///< of the result
  std::int64_t key = 0, padding = 0;
  bool flip = false, channels_last = false;
  float factor[3] = {}, offset[3] = {};  ///< pixel * factor + offset, rounded twice
  float* images = nullptr;
};
cudaError_t augment(const Augmentation& task, cudaStream_t stream);

}  // namespace keel::lab::cuda
