#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// Like svd_polish_block, in global memory.
template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream);

}  // namespace keel::cuda
