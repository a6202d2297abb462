#pragma once

// The safetensors format: a length, a JSON header, raw little-endian tensors. It contains no code.

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

/// The bytes of a file with these tensors (any device, any strides), wide types first. Throws keel::Error for types
/// that the format lacks and for repeated names.
std::string safetensors_bytes(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// The shapes that a file's header declares, checked like all of it, without reading or creating tensors. The header
/// may be a megabyte long. Throws as parse_safetensors(), or Unreadable.
std::map<std::string, std::vector<std::int64_t>> read_shapes(const std::filesystem::path& file);

/// Checks every offset, shape and type against the bytes before creating tensors. Throws keel::Error that names
/// `file` and the tensor.
SafeTensors parse_safetensors(const std::string& bytes, const std::string& file);

}  // namespace keel::lab
