#pragma once

// cuSOLVER's handle, and its errors.

#include <cusolverDn.h>

#include <complex>
#include <map>
#include <memory>
#include <string>

#include "cuda/launch/launch.h"

namespace keel::cuda {

inline void check(const char* operation, cusolverStatus_t status) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    throw Error(std::string(operation) + ": cuSOLVER error " + std::to_string(int(status)));
}

struct Cusolver {
  cusolverDnHandle_t handle = nullptr;
  cusolverDnParams_t parameters = nullptr;
  explicit Cusolver(const char* operation) {
    check(operation, cusolverDnCreate(&handle));
    check(operation, cusolverDnCreateParams(&parameters));
  }
  ~Cusolver() {
    cusolverDnDestroyParams(parameters);
    cusolverDnDestroy(handle);
  }
  Cusolver(const Cusolver&) = delete;
  Cusolver& operator=(const Cusolver&) = delete;
};

/// That of this thread and device, on this stream. Creating one takes milliseconds and allocates memory.
inline const Cusolver& cusolver(const char* operation, const Stream& stream) {
  thread_local std::map<int, std::unique_ptr<Cusolver>> all;
  int device = 0;
  check(operation, cudaGetDevice(&device));
  auto& found = all[device];
  if (!found) found = std::make_unique<Cusolver>(operation);
  check(operation, cusolverDnSetStream(found->handle, native(stream)));
  return *found;
}

template <typename T>
constexpr cudaDataType kCusolverType = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
template <typename T>
constexpr cudaDataType kCusolverType<std::complex<T>> = sizeof(T) == 4 ? CUDA_C_32F : CUDA_C_64F;

inline bool is_capturing(const char* operation, const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(operation, cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace keel::cuda
