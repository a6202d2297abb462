#pragma once

#include "lab/tests/train/support.h"
#include "lab/train/step.h"

namespace keel::lab::test {

/// A TrainingStep on small data, before its first step.
inline TrainingStep training_of(const TrainOptions& options, const DataSet& data = small_data()) {
  torch::manual_seed(options.seed);
  TrainingStep training(ResNet(options.model), data.train, augment_options(data, 0), options,
                        torch::kCPU);
  training.start_epoch(0);
  training.select(0);
  return training;
}

}  // namespace keel::lab::test
