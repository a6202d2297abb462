#pragma once

// BatchNorm in training with addition and ReLU, on raw pointers. Activations are rows of channels (channels_last).
// Each direction is one launch, and the host never waits. The bits depend only on the numbers and the shape.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace keel::lab::cuda {

/// Scratch memory for either direction, in floats.
std::size_t norm_scratch(std::int64_t channels);
/// Size of `barriers`, in numbers.
std::size_t norm_barriers(std::int64_t channels);

/// Arguments of both directions.
struct NormTask {
  bool bfloat16 = true;                 ///< the activations; otherwise float32
  std::int64_t rows = 0, channels = 0;  ///< at least two rows
  bool relu = false;
  float* scratch = nullptr;
  unsigned* barriers =
      nullptr;  ///< zero before the first launch; launches that share them must not overlap
};

/// output = max(0, weight (input - mean) / sqrt(variance + eps) + bias + residual), with the population variance.
struct NormForward : NormTask {
  const void* input = nullptr;
  const void* residual = nullptr;  ///< may be null
  const float *weight = nullptr, *bias = nullptr;
  double eps = 0, momentum = 0;
  float *running_mean = nullptr, *running_variance = nullptr;  ///< updated by `momentum`; unbiased
  std::int64_t* batches = nullptr;                             ///< incremented
  void* output = nullptr;
  float* statistics =
      nullptr;  ///< for backward: mean, 1 / deviation, weight / deviation, by channel
};
cudaError_t norm_forward(const NormForward& task, cudaStream_t stream);

struct NormBackward : NormTask {
  const void* dL_doutput = nullptr;
  const void* more = nullptr;  ///< may be null; added to dL_doutput
  /// ReLU passes no gradient where this is <= 0. May be null without a residual.
  const void* output = nullptr;
  const void* input = nullptr;
  const float *statistics = nullptr, *bias = nullptr;
  void* dL_dinput = nullptr;
  void* dL_dresidual = nullptr;  ///< may be null; without ReLU it is dL_doutput, not written
  float *dL_dweight = nullptr, *dL_dbias = nullptr;
};
cudaError_t norm_backward(const NormBackward& task, cudaStream_t stream);

}  // namespace keel::lab::cuda
