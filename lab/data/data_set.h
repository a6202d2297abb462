#pragma once

// Labelled images in memory, and where they come from.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
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
  /// Decisions of the loader that a user should know, one sentence each.
  std::vector<std::string> notes;
};

struct DataOptions {
  /// synthetic: drawn at start-up. cifar10, cifar100: the binary files. folder: JPEG and PNG images
  /// in a folder for each class. packed: what pack() wrote.
  std::string source = "synthetic";
  std::filesystem::path path = {};  ///< of all sources but synthetic
  std::string labels = "fine";      ///< cifar100: fine (100 classes) or coarse (20)
  /// Height and width, 4 or more. Images of another size are scaled (and cropped about the centre
  /// to a square before). 0 keeps their size, which must be the same for all.
  std::int64_t size = 32;
  /// The largest number of images, spread evenly over the classes; 0 means all. For synthetic, the number to draw.
  std::int64_t train_limit = 0, test_limit = 0;
  std::uint64_t seed = 0;  ///< of the images drawn, of splits and of limits
};

/// The names DataOptions takes for `source`.
const std::vector<std::string>& data_sources();

/// And for `labels`.
const std::vector<std::string>& data_labels();

/// Called on the thread that loads, now and then and once at the end.
using Progress =
    std::function<void(const std::string& what, std::int64_t done, std::int64_t total)>;

void validate(const DataOptions& options);

/// Throws keel::Error that names the file and the place in it.
DataSet load(const DataOptions& options, const Progress& progress = {});

/// Writes the packed form: one file, laid out as safetensors, with a checksum. All or nothing: an
/// interrupted write leaves the old file.
void pack(const DataSet& data, const std::filesystem::path& file, const Progress& progress = {});

}  // namespace keel::lab
