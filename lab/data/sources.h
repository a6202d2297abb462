#pragma once

// The sources behind load(), one file each, and their common functions.

#include <fmt/format.h>

#include "lab/data/data_set.h"
#include "lab/require.h"

namespace keel::lab {

/// Throws keel::Error, "FILE: WHAT", unless it holds.
template <typename... Args>
void require_of(const std::filesystem::path& file, bool holds, fmt::format_string<Args...> what,
                Args&&... args) {
  if (!holds) throw Error(file.string() + ": " + fmt::format(what, std::forward<Args>(args)...));
}

DataSet load_synthetic(const DataOptions& options);
DataSet load_cifar(const DataOptions& options);
DataSet load_packed(const DataOptions& options);

/// Parses a packed file and checks all its bytes. Errors name `file`.
DataSet parse_packed(const std::string& bytes, const std::filesystem::path& file);

/// The samples that a limit keeps: chosen at random, evenly over the classes, in their original order. 0 keeps all.
std::vector<std::int64_t> limited(const std::vector<std::int64_t>& labels, std::int64_t limit,
                                  std::uint64_t seed);
Images limited(const Images& images, std::int64_t limit, std::uint64_t seed);

/// The largest centred squares of images (N, 3, height, width), scaled to size x size: bilinear, over all pixels that a
/// new one covers.
torch::Tensor squared(const torch::Tensor& pixels, std::int64_t size);

/// Scales to size x size; 0 keeps the size.
Images resized(const Images& images, std::int64_t size);

/// Sets mean and deviation from the training pixels.
void measure(DataSet& data);

}  // namespace keel::lab
