#pragma once

// The sources behind load(), one file each, and their common functions.

#include "lab/data/data_set.h"
#include "lab/require.h"

namespace keel::lab {

DataSet load_synthetic(const DataOptions& options);
DataSet load_cifar(const DataOptions& options);
DataSet load_packed(const DataOptions& options);

/// What a limit keeps: images chosen at random, evenly over the classes, in their original order. 0 keeps all.
Images limited(const Images& images, std::int64_t limit, std::uint64_t seed);

/// The largest centred squares of the images, scaled to size x size: bilinear, over all pixels that a new one covers. 0
/// keeps the size.
Images resized(const Images& images, std::int64_t size);

/// Sets mean and deviation from the training pixels.
void measure(DataSet& data);

}  // namespace keel::lab
