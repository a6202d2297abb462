#pragma once

#include <string>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// Where and with what this process runs. `device` is for whoever runs something there to say.
Origin this_origin(const std::string& command, const std::string& device = "cpu");

}  // namespace keel::lab::reproduce
