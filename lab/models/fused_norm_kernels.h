#pragma once

// BatchNorm in training with what follows it, on plain pointers: activations are rows of channels (channels_last). One
// launch a direction, nothing waits for the device, and the bits depend on the numbers and the shape alone.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace keel::lab::cuda {

enum class Element { float32, float16, bfloat16 };

/// Floats of scratch memory that either direction asks for.
std::size_t norm_scratch(std::int64_t channels);
/// Numbers of `barriers`.
std::size_t norm_barriers(std::int64_t channels);

/// What both directions are told.
struct NormTask {
  Element element = Element::bfloat16;
  std::int64_t rows = 0, channels = 0;  ///< at least two rows
  bool relu = false;
  float* scratch = nullptr;
  unsigned* barriers =
      nullptr;  ///< zeros before the first launch; launches that share them follow each other
};

/// output = max(0, weight (input - mean) / sqrt(variance + eps) + bias + residual), with the population variance.
struct NormForward : NormTask {
  const void* input = nullptr;
  const void* residual = nullptr;  ///< or nothing
  const float *weight = nullptr, *bias = nullptr;
  double eps = 0, momentum = 0;
  float *running_mean = nullptr, *running_variance = nullptr;  ///< moved by `momentum`; unbiased
  std::int64_t* batches = nullptr;                             ///< one more
  void* output = nullptr;
  float* statistics =
      nullptr;  ///< for backward: mean, 1 / deviation, weight / deviation, by channel
};
cudaError_t norm_forward(const NormForward& task, cudaStream_t stream);

struct NormBackward : NormTask {
  const void* dL_doutput = nullptr;
  const void* more = nullptr;  ///< or nothing; added to dL_doutput
  /// ReLU passes nothing where this is not above zero. Without a residual it can be left out.
  const void* output = nullptr;
  const void* input = nullptr;
  const float *statistics = nullptr, *bias = nullptr;
  void* dL_dinput = nullptr;
  void* dL_dresidual = nullptr;  ///< or nothing; without ReLU it is dL_doutput and not written
  float *dL_dweight = nullptr, *dL_dbias = nullptr;
};
cudaError_t norm_backward(const NormBackward& task, cudaStream_t stream);

}  // namespace keel::lab::cuda
