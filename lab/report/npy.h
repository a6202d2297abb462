#pragma once

#include <torch/types.h>

#include <filesystem>

namespace keel::lab::report {

/// A NumPy .npy file as a float64 tensor. Accepts little-endian f2, f4, f8, i4 and i8 in C or Fortran order. Sizes
/// are checked against the file before anything is read. Throws keel::Error that names the file.
torch::Tensor read_npy(const std::filesystem::path& file);

}  // namespace keel::lab::report
