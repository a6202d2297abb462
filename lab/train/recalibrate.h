#pragma once

#include <cstdint>
#include <memory>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/graph.h"
#include "lab/train/options.h"

namespace keel::lab {

/// Makes the running statistics of all norms again (keel::nn::recalibrate), as often as it is asked to.
///
/// Which images, and how they are cropped, comes of (options.seed, step) alone: it neither reads nor moves the
/// training's own random numbers. Of several processes each takes its part of every batch.
///
/// Where training steps are captured (uses_graph), so is the pass of a batch, after a few as they are: the same operations
/// on the same numbers. Then call it under the DeviceScope of the training. Of several processes none is captured.
class Recalibrator {
 public:
  static constexpr std::int64_t kPassesBeforeCapture = 3;

  /// `model` and `images` are on the device.
  Recalibrator(ResNet model, Images images, const AugmentOptions& augmentation,
               const TrainOptions& options, Processes* processes = nullptr);

  /// From options.recalibrate batches of training images, augmented as in training; an epoch's batches are the most.
  /// Returns how many it took.
  std::int64_t run(std::int64_t step);

 private:
  void pass(std::int64_t batch);
  void forward();

  ResNet model_;
  Images images_;
  AugmentOptions augmentation_;
  TrainOptions options_;
  Processes* processes_;
  torch::Tensor order_, chosen_, turn_;  ///< images; those of the batch; what their crops come of
  std::int64_t passes_ = 0;
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace keel::lab
