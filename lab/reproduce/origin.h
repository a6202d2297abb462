#pragma once

#include <string>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// LibTorch's: "11.8", or nothing where it has no CUDA.
std::string cuda_version();

/// Where and with what this process runs. `device` is for whoever runs something there to say.
Origin this_origin(const std::string& command, const std::string& device = "cpu");

}  // namespace keel::lab::reproduce
