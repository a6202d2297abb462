#pragma once

// The parts of a training step after backward, on raw pointers: gather gradients, descend.

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
