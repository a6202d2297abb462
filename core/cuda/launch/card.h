#pragma once

// Properties of the GPU, and errors of calls to CUDA. GPUs differ most in the shared memory that a block can have: 227 KB
// on an H100 or H200, 163 on an A100, 99 on an RTX 30 or 40. What does not fit takes another, slower path.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "cuda/plan.h"
#include "keel/error.h"
#include "keel/stream.h"

namespace keel::cuda {

inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

inline void check(const char* operation, cudaError_t error) {
  if (error == cudaSuccess) return;
  throw Error(std::string(operation) + ": CUDA error: " + cudaGetErrorString(error));
}

/// Checks after a launch that it was queued.
inline void check_launch(const char* operation) { check(operation, cudaGetLastError()); }

/// The number of multiprocessors of the current device. Use it only where the result does not
/// depend on how the work is split.
std::int64_t multiprocessors();

/// For work whose split changes the last bits of sums: the number of an H200, on every GPU.
inline constexpr std::int64_t kFixedMultiprocessors = 132;

/// Whether the current device can launch clusters of blocks, which have their own barrier.
bool has_clusters();

/// The current device's, with the limit of the environment.
Card this_card();

/// Whether the kernel was compiled for devices with clusters.
bool compiled_for_clusters(const void* kernel);

/// Whether KERNEL can be launched in clusters.
template <auto KERNEL>
bool runs_in_clusters() {
  static const bool compiled = compiled_for_clusters(reinterpret_cast<const void*>(KERNEL));
  return compiled && has_clusters();
}

/// The bytes of shared memory that a block of the current device can have. KEEL_SHARED_MEMORY_KB in
/// the environment lowers it, to test on a large GPU what a small one does.
int shared_memory_of_a_block();

inline bool fits_a_block(int bytes) { return bytes <= shared_memory_of_a_block(); }

/// The shared memory that the kernel declares statically.
int declared_shared_memory(const void* kernel);

/// Whether KERNEL can have this much dynamic shared memory.
template <auto KERNEL>
bool fits_a_block_of(int bytes) {
  static const int declared = declared_shared_memory(reinterpret_cast<const void*>(KERNEL));
  return fits_a_block(declared + bytes);
}

/// Requests dynamic shared memory for a kernel, which is needed beyond 48 KB in total. Throws if
/// the GPU has less.
void allow_shared_memory(const char* operation, const void* kernel, int bytes);

template <typename... Parameters>
void allow_shared_memory(const char* operation, void (*kernel)(Parameters...), int bytes) {
  allow_shared_memory(operation, reinterpret_cast<const void*>(kernel), bytes);
}

}  // namespace keel::cuda
