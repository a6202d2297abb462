#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// max(m, n) <= 4 and neither zero: a thread a matrix.
template <typename T>
void svd_tiny(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
              SvdStatus* status, const Stream& stream);

}  // namespace keel::cuda
