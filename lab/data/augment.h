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
};

/// Options with the data set's mean and deviation.
AugmentOptions augment_options(const DataSet& data, std::uint64_t seed);

/// The crop and flip of each of `count` samples of that width, (count, 3) int64 on the CPU: {down, sign, shift}. Pixel (y, x)
/// of the result is pixel (y + down, sign x + shift) of the sample. They depend only on (seed, epoch, index of the sample).
torch::Tensor random_crops(const AugmentOptions& options, std::int64_t epoch, std::int64_t count,
                           std::int64_t width);

/// Crop, flip and normalisation of the samples `indices` (B), int64, of `pixels` (N, 3, H, W), uint8. Returns float32
/// (B, 3, H, W). `crops` are those of random_crops() for all N samples, on the device. Uses only tensor operations without
/// host synchronisation, so it can be captured in a CUDA graph that reads other crops in each epoch.
torch::Tensor augment(const torch::Tensor& pixels, const torch::Tensor& indices,
                      const torch::Tensor& crops, const AugmentOptions& options);

/// (pixels / 255 - mean) / deviation, float32, for evaluation.
torch::Tensor normalise(const torch::Tensor& pixels, const AugmentOptions& options);

}  // namespace keel::lab
