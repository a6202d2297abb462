#pragma once

// The parts of a training step after backward, each in one GPU launch. Implemented in fused_step_cuda.cpp if the build has
// the lab's CUDA kernels, otherwise in lab/no_kernels.cpp.

#include <torch/types.h>

#include <vector>

namespace keel::lab {

bool has_fused_step();  ///< whether this build has the kernels

/// Concatenates contiguous float32 or bfloat16 pieces into `gradients`, which is float32. Sets `not_finite` (one
/// int32) to 1 if any number is not finite.
void fused_gather(const std::vector<torch::Tensor>& pieces, const torch::Tensor& gradients,
                  const torch::Tensor& not_finite);

/// TrainingStep's readings, on the device.
struct FusedReadings {
  torch::Tensor loss_sum, error_sum, gradient_norm, good_steps;  ///< float64
  torch::Tensor halted;                                          ///< bool
};

/// Adds loss (float32) and errors (int64), raises the gradient norm to that of `leading` if it is larger, and halts
/// if the loss is not finite or `not_finite` is set. Then clears `not_finite`.
void fused_measure(const FusedReadings& readings, const torch::Tensor& loss,
                   const torch::Tensor& errors, const torch::Tensor& leading,
                   const torch::Tensor& not_finite);

/// descend() of flat_parameters.h for float32 buffers, with bitwise the same parameters. If `halted`, momenta stay
/// unchanged too.
void fused_descend(const torch::Tensor& values, const torch::Tensor& gradients,
                   const torch::Tensor& momenta, const torch::Tensor& rate,
                   const torch::Tensor& halted, double momentum, double weight_decay);

}  // namespace keel::lab
