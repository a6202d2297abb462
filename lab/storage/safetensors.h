#pragma once

// The safetensors format: a length, a JSON header, raw little-endian tensors. Nothing in it executes.

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace keel::lab {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafeTensors {
  std::map<std::string, torch::Tensor> tensors;  ///< contiguous, on the CPU
  std::map<std::string, std::string> metadata;
};

/// The bytes of a file with these tensors (any device, any strides), wide types first.
/// Throws keel::Error for types the format lacks and for names that repeat.
std::string safetensors_bytes(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// Checks every offset, shape and type against the bytes before it creates tensors. Throws keel::Error that names `file`
/// and the place.
SafeTensors parse_safetensors(const std::string& bytes, const std::string& file);

/// Atomic: on failure the old file stays as it was.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace keel::lab
