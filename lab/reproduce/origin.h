#pragma once

#include <string>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// LibTorch's CUDA version ("11.8"), or an empty string without CUDA.
std::string cuda_version();

/// The machine and software of this process. The caller names the `device` that it uses.
Origin this_origin(const std::string& command, const std::string& device = "cpu");

}  // namespace keel::lab::reproduce
