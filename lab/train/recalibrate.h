#pragma once

#include <cstdint>
#include <memory>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/graph.h"
#include "lab/train/options.h"

namespace keel::lab {

/// Recomputes the running statistics of options.recalibrate_norms (keel::nn::recalibrate). May be called repeatedly.
///
/// The choice of images and their crops depends only on (options.seed, step). The random state of training is neither
/// used nor changed. With several processes, each takes its part of every batch.
///
/// If training steps are captured (uses_graph), so is this pass, after a few uncaptured batches. Then call it in the
/// DeviceScope of the training.
class Recalibrator {
 public:
  static constexpr std::int64_t kPassesBeforeCapture = 3;

  /// `model` and `images` must be on the device.
  Recalibrator(ResNet model, Images images, const AugmentOptions& augmentation,
               const TrainOptions& options, Processes* processes = nullptr);

  /// Uses options.recalibrate batches of training images, augmented as in training, and at most one epoch of them.
  /// Returns the number of batches.
  std::int64_t run(std::int64_t step);

 private:
  bool wanted(const torch::nn::Module& norm) const;
  void pass(std::int64_t batch);
  void forward();

  ResNet model_;
  Images images_;
  AugmentOptions augmentation_;
  TrainOptions options_;
  Processes* processes_;
  torch::Tensor order_, chosen_, crops_;  ///< image order; the batch's images; all images' crops
  std::int64_t passes_ = 0;
  Replay graph_;
};

}  // namespace keel::lab
