#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// 0 < min(m, n) <= 512: a block a matrix, or a cluster of blocks. `is_left`: null, or which matrices are to be solved; the
/// others' results stay as they are.
template <typename T>
void svd_shared(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const bool* is_left, const Stream& stream);

}  // namespace keel::cuda
