#pragma once

// What the card has. Cards of one generation differ most in the shared memory that a block can have: 227 KB on an
// H100 or H200, 163 on an A100, 99 on an RTX 30 or 40. What does not fit goes another, slower way.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::cuda {

/// Of the current device: as many blocks as there are of these fill it. For work that comes out the same however
/// it is cut up.
std::int64_t multiprocessors();

/// Where the way of cutting shows, in the last bits of sums: those of an H200, on every card.
inline constexpr std::int64_t kFixedMultiprocessors = 132;

/// Whether blocks of the current device can be launched in clusters, which have a barrier of their own.
bool has_clusters();

/// Bytes on the current device. KEEL_SHARED_MEMORY_KB in the environment makes it less, so that a large card
/// can be tested for what a small one does.
int shared_memory_of_a_block();

inline bool fits_a_block(int bytes) { return bytes <= shared_memory_of_a_block(); }

/// What the kernel declares itself.
int declared_shared_memory(const void* kernel);

/// Whether KERNEL can have that much beside what it declares.
template <auto KERNEL>
bool fits_a_block_of(int bytes) {
  static const int declared = declared_shared_memory(reinterpret_cast<const void*>(KERNEL));
  return fits_a_block(declared + bytes);
}

/// Lets a kernel have that much: beyond 48 KB in all it has to be asked for. Throws where the card has less.
void allow_shared_memory(const char* operation, const void* kernel, int bytes);

template <typename... Parameters>
void allow_shared_memory(const char* operation, void (*kernel)(Parameters...), int bytes) {
  allow_shared_memory(operation, reinterpret_cast<const void*>(kernel), bytes);
}

}  // namespace keel::cuda
