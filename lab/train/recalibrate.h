#pragma once

#include <cstdint>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/options.h"

namespace keel::lab {

/// Makes the running statistics of all norms again (keel::nn::recalibrate) from options.recalibrate batches of
/// training images, augmented as in training; an epoch's batches are the most. Returns how many it took. `model` and
/// `images` are on the device.
///
/// Which images, and how they are cropped, comes of (options.seed, step) alone: it neither reads nor moves the
/// training's own random numbers. Of several processes each takes its part of every batch.
std::int64_t recalibrate(ResNet& model, const Images& images, const AugmentOptions& augmentation,
                         const TrainOptions& options, std::int64_t step,
                         Processes* processes = nullptr);

}  // namespace keel::lab
