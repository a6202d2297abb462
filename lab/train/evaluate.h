#pragma once

#include "lab/data/augment.h"
#include "lab/processes/processes.h"
#include "lab/train/checkpoint.h"
#include "lab/train/trainer.h"

namespace keel::lab {

/// As evaluate(), for a network and images that are on the device already. Of several processes each
/// gives its own part of the images, and all get the result of all.
Evaluation evaluate_there(ResNet& model, const Images& images, const AugmentOptions& normalisation,
                          const TrainOptions& options, torch::Device device,
                          Processes* processes = nullptr);

/// Labels and normalisation as the network of this checkpoint learnt them: classes go by their names, and
/// the images may be others than those that the statistics were taken from. Throws keel::Error where a
/// class is none of the network's.
void as_trained_on(DataSet& data, const Checkpoint& checkpoint);

/// Throws keel::Error unless every label is one of the classes.
void require_labels(const char* who, const Images& images, std::int64_t classes);

}  // namespace keel::lab
