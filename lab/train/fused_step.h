#pragma once

// The parts of a training step after backward, each in one GPU launch. Implemented in fused_step_cuda.cpp if the build has
// the lab's CUDA kernels, otherwise in lab/no_kernels.cpp.

#include <torch/types.h>

#include <vector>

namespace keel::lab {

bool has_fused_step();  ///< whether this build has the kernels

/// A parameter's gradient, contiguous and float32 or bfloat16, and where it goes.
struct GradientPiece {
  torch::Tensor numbers;
  std::int64_t begin;
};

/// Copies the pieces into `gradients`, which is float32. Sets `not_finite` (one int32) to 1 if any number is not
/// finite.
void fused_gather(const std::vector<GradientPiece>& pieces, const torch::Tensor& gradients,
                  const torch::Tensor& not_finite);

/// TrainingStep's readings, on the device.
struct FusedReadings {
  torch::Tensor loss_sum, error_sum, gradient_norm, good_steps;  ///< float64
  torch::Tensor halted;                                          ///< bool
  torch::Tensor applied_rate;                                    ///< float32; NaN once halted
  torch::Tensor recent;                                          ///< float64, of any size
};

/// Adds loss (float32) and errors (int64), raises the gradient norm to that of `leading` if it is larger, writes that of
/// `leading` to its place in `recent` unless the run has halted before, and halts
/// if the loss is not finite or `not_finite` is set. Then clears `not_finite`, and sets the rate of the descent:
/// `rate`, or NaN if halted.
void fused_measure(const FusedReadings& readings, const torch::Tensor& loss,
                   const torch::Tensor& errors, const torch::Tensor& leading,
                   const torch::Tensor& not_finite, const torch::Tensor& rate);

/// Buffers of parameters.
struct DescentBuffers {
  torch::Tensor values, gradients, momenta;  ///< float32
  torch::Tensor bfloat16_values;             ///< gets the new values, rounded; or undefined
};

/// descend() of flat_parameters.h with bitwise the same parameters. If the rate is NaN, nothing changes, momenta
/// included.
void fused_descend(const DescentBuffers& buffers, const torch::Tensor& rate, double momentum,
                   double weight_decay);

}  // namespace keel::lab
