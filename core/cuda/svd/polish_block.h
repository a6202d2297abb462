#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// Solves matrices that are not steep. Marks the others in `is_left` and leaves their results unwritten.
template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* is_left, bool in_one_launch,
                      const Stream& stream);

}  // namespace keel::cuda
