#include "cuda/launch/card.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::cuda";

int limit_of_environment() {
  const char* const given = std::getenv("KEEL_SHARED_MEMORY_KB");
  if (given == nullptr) return std::numeric_limits<int>::max();
  const std::string_view text = given;
  const char* const end = text.data() + text.size();
  int kilobytes = 0;
  if (std::from_chars(text.data(), end, kilobytes).ptr != end || kilobytes < 48 || kilobytes > 1024)
    throw Error("keel::cuda: expected KEEL_SHARED_MEMORY_KB from 48 to 1024, got '" +
                std::string(text) + "'");
  return kilobytes * 1024;
}

/// An attribute of the current device, cached.
template <cudaDeviceAttr WHICH>
int attribute() {
  static std::array<std::atomic<int>, 64> known{};  // by device
  int device = 0, value = 0;
  check(kName, cudaGetDevice(&device));
  const bool has_place = std::size_t(device) < known.size();
  if (has_place) value = known[std::size_t(device)];
  if (value == 0) {
    check(kName, cudaDeviceGetAttribute(&value, WHICH, device));
    if (has_place) known[std::size_t(device)] = value;
  }
  return value;
}

cudaFuncAttributes attributes_of(const void* kernel) {
  cudaFuncAttributes attributes{};
  check(kName, cudaFuncGetAttributes(&attributes, kernel));
  return attributes;
}

}  // namespace

std::int64_t multiprocessors() { return attribute<cudaDevAttrMultiProcessorCount>(); }

bool has_clusters() { return attribute<cudaDevAttrClusterLaunch>() != 0; }

int shared_memory_of_a_block() {
  static const int limit = limit_of_environment();
  return std::min(attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>(), limit);
}

Card this_card() { return {multiprocessors(), shared_memory_of_a_block(), has_clusters()}; }

bool compiled_for_clusters(const void* kernel) { return attributes_of(kernel).ptxVersion >= 90; }

int declared_shared_memory(const void* kernel) {
  return int(attributes_of(kernel).sharedSizeBytes);
}

void allow_shared_memory(const char* operation, const void* kernel, int bytes) {
  // Up to 48 KB, including what the kernel declares statically, nothing has to be requested.
  if (bytes <= 32 * 1024) return;
  if (!fits_a_block(bytes))
    throw Error(std::string(operation) + ": expected a GPU whose blocks can have " +
                std::to_string(bytes / 1024) + " KB of shared memory, this one's have " +
                std::to_string(shared_memory_of_a_block() / 1024));
  check(operation,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

}  // namespace keel::cuda
