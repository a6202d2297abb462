#pragma once

// Turns uint8 images into a network's input, on the images' device.

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "lab/data/data_set.h"

namespace keel::lab {

struct AugmentOptions {
  std::uint64_t seed = 0;
  std::int64_t padding = 4;  ///< black pixels on each side before the random crop, >= 0
  bool flip = true;          ///< mirror half of the images, at random
  std::array<double, 3> mean{0, 0, 0}, deviation{1, 1, 1};  ///< per channel, in [0, 1]
  bool channels_last = false;                               ///< memory format of the result
  bool fused = true;  ///< on a GPU use one launch if the build has it; the same bits
};

/// Options with the data set's mean and deviation.
AugmentOptions augment_options(const DataSet& data, std::uint64_t seed);

/// Random crop, flip and normalisation of the samples `indices` (B), int64, of `pixels` (N, 3, H, W), uint8. Returns
/// float32 (B, 3, H, W). `epoch` is an int64 scalar tensor.
///
/// Crop and flip depend only on (seed, epoch, index of the sample), not on the batch, its order or the device. Uses
/// only tensor operations without host synchronisation, so it can be captured in a CUDA graph that advances `epoch`.
torch::Tensor augment(const torch::Tensor& pixels, const torch::Tensor& indices,
                      const torch::Tensor& epoch, const AugmentOptions& options);

/// (pixels / 255 - mean) / deviation, float32, for evaluation.
torch::Tensor normalise(const torch::Tensor& pixels, const AugmentOptions& options);

}  // namespace keel::lab
