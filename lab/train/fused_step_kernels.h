#pragma once

// The parts of a training step after backward, on raw pointers: gather gradients, measure, descend.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::lab::cuda {

/// A parameter's gradient as backward left it.
struct Piece {
  const void* from = nullptr;
  std::int64_t begin = 0, size = 0;  ///< where it goes
  bool bfloat16 = false;             ///< otherwise float32
};

/// Copies the pieces into `gradients` as float32. Sets `not_finite` to 1 if a number is not finite.
cudaError_t gather(const Piece* pieces, std::int64_t count, float* gradients, unsigned* not_finite,
                   cudaStream_t stream);

/// Updates TrainingStep's readings after a step.
struct Measurement {
  const float* loss = nullptr;
  const std::int64_t* errors = nullptr;
  const float* leading = nullptr;  ///< gradients whose norm is measured
  std::int64_t leading_size = 0;
  unsigned* not_finite = nullptr;  ///< set by gather, cleared by measure
  /// Sums of losses and errors, the largest norm, the number of good steps.
  double *loss_sum = nullptr, *error_sum = nullptr, *norm = nullptr, *good_steps = nullptr;
  bool* halted = nullptr;
  const float* rate = nullptr;
  float* applied_rate = nullptr;  ///< becomes the rate, or NaN if halted
  /// The norm of step k at k modulo recent_size, up to the step that halts.
  double* recent = nullptr;
  std::int64_t recent_size = 0;
};
cudaError_t measure(const Measurement& task, cudaStream_t stream);

/// m <- momentum m + (g + weight_decay p), p <- p - rate m, rounded as torch's operators round. Writes nothing if the
/// rate is NaN.
struct Descent {
  std::int64_t size = 0;
  const float *gradients = nullptr, *rate = nullptr;
  float momentum = 0, weight_decay = 0;
  float *values = nullptr, *momenta = nullptr;
  void* bfloat16_values = nullptr;  ///< if not null: gets the new values, rounded
};
cudaError_t descend(const Descent& task, cudaStream_t stream);

}  // namespace keel::lab::cuda
