#pragma once

#include <cstdint>

#include "host_device.h"
#include "keel/matrices.h"

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

/// Matrix b, transposed if it is wider than tall.
template <typename T>
KEEL_HOST_DEVICE SvdSource<T> upright(const Rectangles<const T>& matrices, std::int64_t b) {
  const bool wide = matrices.rows < matrices.columns;
  return {matrices[b], wide ? 1 : matrices.row_stride, wide ? matrices.row_stride : 1};
}

}  // namespace keel::cuda
