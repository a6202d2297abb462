#pragma once

#include "lab/data/augment.h"
#include "lab/processes/processes.h"
#include "lab/train/checkpoint.h"
#include "lab/train/trainer.h"

namespace keel::lab {

/// evaluate() for a network and images that are already on the device. With several processes, each passes its own
/// part of the images and all get the overall result.
Evaluation evaluate_there(ResNet& model, const Images& images, const AugmentOptions& normalisation,
                          const TrainOptions& options, torch::Device device,
                          Processes* processes = nullptr);

/// Maps labels and normalisation to those of the checkpoint's network. Classes are matched by name. Throws keel::Error if
/// the network does not know a class.
void as_trained_on(DataSet& data, const Checkpoint& checkpoint);

/// Throws keel::Error unless every label is one of the classes.
void require_labels(const Images& images, std::int64_t classes);

}  // namespace keel::lab
