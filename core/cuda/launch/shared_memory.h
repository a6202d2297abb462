#pragma once

// How much shared memory a block can have, which is where cards of one generation differ most: 227 KB on an
// H100 or H200, 163 on an A100, 99 on an RTX 30 or 40. What does not fit goes another, slower way.

#include <cuda_runtime_api.h>

namespace keel::cuda {

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
