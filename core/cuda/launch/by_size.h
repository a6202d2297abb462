#pragma once

// From a size to the kernel that is compiled for it.

#include <cstdint>
#include <type_traits>

#include "cuda/plan.h"

namespace keel::cuda {

/// Calls body(std::integral_constant<int, SIZE>) with the first of these sizes that is at least n, or with the last.
template <int FIRST, int... REST, typename Body>
auto by_size(std::int64_t n, const Body& body) {
  if constexpr (sizeof...(REST) > 0)
    if (n > FIRST) return by_size<REST...>(n, body);
  return body(std::integral_constant<int, FIRST>{});
}

/// The kernels with one thread per matrix.
template <typename Body>
auto by_tiny_size(std::int64_t n, const Body& body) {
  return by_size<1, 2, 3, 4>(n, body);
}
/// Those of matrix/small.cuh.
template <typename Body>
auto by_small_size(std::int64_t n, const Body& body) {
  return by_size<16, 32, 64>(n, body);
}
/// Those of eigh in a block.
template <typename T, typename Body>
auto by_block_size(std::int64_t n, const Body& body) {
  if constexpr (kLargestInBlock < T >> 64)
    return by_size<4, 8, 16, 32, 64, 128>(n, body);
  else
    return by_size<4, 8, 16, 32, 64>(n, body);
}

}  // namespace keel::cuda
