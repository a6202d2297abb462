#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// 0 < min(m, n) <= 512: a block a matrix, or a cluster of blocks.
template <typename T>
void svd_shared(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const Stream& stream);

}  // namespace keel::cuda
