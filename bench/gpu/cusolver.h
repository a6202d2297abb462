#pragma once

// What calls of cuSOLVER have in common.

#include <c10/cuda/CUDAStream.h>
#include <cusolverDn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace keel::bench {

inline void check(cusolverStatus_t status, const char* what) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{}: cuSOLVER status {}", what, int(status)));
}
#define KEEL_CHECK(call) check(call, #call)

inline constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;

/// One handle for the program, on LibTorch's current stream.
inline cusolverDnHandle_t handle() {
  static cusolverDnHandle_t shared = [] {
    cusolverDnHandle_t made = nullptr;
    KEEL_CHECK(cusolverDnCreate(&made));
    return made;
  }();
  KEEL_CHECK(cusolverDnSetStream(shared, c10::cuda::getCurrentCUDAStream().stream()));
  return shared;
}

}  // namespace keel::bench
