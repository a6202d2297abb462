#pragma once

// What a training step does after backward, in one launch each on the GPU. fused_step_cuda.cpp where the build has the
// lab's CUDA kernels, fused_step_none.cpp elsewhere.

#include <torch/types.h>

#include <vector>

namespace keel::lab {

bool has_fused_step();  ///< this build has the kernels

/// The pieces, of float32 or bfloat16 and contiguous, one behind another in `gradients`, of float32. Where one of their
/// numbers is not finite, `not_finite` (int32, one number) becomes 1.
void fused_gather(const std::vector<torch::Tensor>& pieces, const torch::Tensor& gradients,
                  const torch::Tensor& not_finite);

/// A step's readings: those of TrainingStep, on the device.
struct FusedReadings {
  torch::Tensor loss_sum, error_sum, gradient_norm, good_steps;  ///< float64
  torch::Tensor halted;                                          ///< bool
};

/// Adds loss (float32) and errors (int64), takes in the norm of `leading`, and halts where the loss or, by `not_finite`,
/// a gradient is not finite; `not_finite` is zero afterwards.
void fused_measure(const FusedReadings& readings, const torch::Tensor& loss,
                   const torch::Tensor& errors, const torch::Tensor& leading,
                   const torch::Tensor& not_finite);

/// descend() of flat_parameters.h on float32 buffers, to the same bits. Where `halted`, momenta stay as well.
void fused_descend(const torch::Tensor& values, const torch::Tensor& gradients,
                   const torch::Tensor& momenta, const torch::Tensor& rate,
                   const torch::Tensor& halted, double momentum, double weight_decay);

}  // namespace keel::lab
