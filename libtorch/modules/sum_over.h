#pragma once

#include "keel/torch/nn/process_group.h"

namespace keel::nn {

/// Replaces a tensor by its sum over the processes. A failure says on which of them it was noticed.
void sum_over(const ProcessGroup& group, torch::Tensor& tensor);

/// `count` (1), the samples of all processes, are enough for statistics. On a GPU nobody waits to look: no samples
/// give NaN there, and one gives zeros.
void check_samples(const ProcessGroup& group, const torch::Tensor& count);

}  // namespace keel::nn
