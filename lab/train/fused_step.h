#pragma once

// The optimiser's part of a training step: gather gradients, descend. Each is one GPU launch. Implemented in fused_step_cuda.cpp if the build has
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
