#pragma once

// Labelled images in memory, and their sources.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "keel/error.h"

namespace keel::lab {

struct Images {
  torch::Tensor pixels;  ///< uint8 (N, 3, H, W)
  torch::Tensor labels;  ///< int64 (N)

  std::int64_t count() const { return labels.defined() ? labels.size(0) : 0; }
  Images to(torch::Device device) const { return {pixels.to(device), labels.to(device)}; }
};

struct DataSet {
  std::string name;
  std::vector<std::string> classes;
  Images train, test;
  std::array<double, 3> mean{}, deviation{};  ///< of the training pixels, per channel, in [0, 1]
};

struct DataOptions {
  /// synthetic: drawn at start-up. cifar10, cifar100: the binary files. packed: a file of pack() or scripts/pack-images.
  std::string source = "synthetic";
  std::filesystem::path path = {};  ///< for all sources but synthetic
  /// Height and width, at least 4. Images of another size are cropped to a centred square and scaled. 0 keeps their
  /// size, which must then be the same for all.
  std::int64_t size = 32;
  /// The largest number of images, spread evenly over the classes; 0 means all. For synthetic, the number to draw.
  std::int64_t train_limit = 0, test_limit = 0;
  std::uint64_t seed = 0;  ///< for drawn images, splits and limits
};

/// The names that DataOptions accepts as `source`.
const std::vector<std::string>& data_sources();

void validate(const DataOptions& options);

/// Throws keel::Error that names the file and the place in it.
DataSet load(const DataOptions& options);

/// Writes the packed form: one safetensors file with a checksum. Writes atomically: an interrupted write leaves the
/// old file, and one that fails throws std::system_error that names it.
void pack(const DataSet& data, const std::filesystem::path& file);

// The sources behind load(), one file each, and what they share.

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
