#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// For 0 < min(m, n) and max(m, n) <= 4: one thread per matrix.
template <typename T>
void svd_tiny(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
              SvdStatus* status, const Stream& stream);

}  // namespace keel::cuda
