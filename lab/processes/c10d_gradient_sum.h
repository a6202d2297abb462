#pragma once

#include "lab/processes/c10d_versions.h"
#include "lab/processes/collectives.h"

namespace keel::lab {

std::unique_ptr<GradientSum> make_gradient_sum(const std::vector<torch::Tensor>& parameters,
                                               const BackendPointer& backend,
                                               const GroupPointer& group, SumWatch watch);

}  // namespace keel::lab
