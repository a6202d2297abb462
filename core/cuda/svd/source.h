#pragma once

#include <cstdint>

#include "host_device.h"

namespace keel::cuda {

/// A matrix or its transpose, such that it is not wider than tall.
template <typename T>
struct SvdSource {
  const T* data;
  std::int64_t down, along;  ///< strides from one row, and one column, to the next

  KEEL_HOST_DEVICE T operator()(std::int64_t i, std::int64_t j) const {
    return data[i * down + j * along];
  }
};

}  // namespace keel::cuda
