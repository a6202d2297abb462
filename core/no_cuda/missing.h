#pragma once

#include <string>

#include "keel/error.h"

namespace keel::cuda {

/// What every stage of this folder does.
[[noreturn]] inline void missing(const char* stage) {
  throw Error(std::string(stage) +
              ": this build has no CUDA. Configure with -DKEEL_CUDA=ON where nvcc is found");
}

}  // namespace keel::cuda
