#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// Whether a block of this device can hold X, J and K (polish.h) of such matrices, and it pays: they are not too
/// small, and not so few and large that many blocks per matrix (polish_grid.h) are faster.
template <typename T>
bool polishes_in_block(std::int64_t batch, std::int64_t rows, std::int64_t columns);

/// Solves matrices that are not steep. Marks the others in `is_left` and leaves their results unwritten.
template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream);

}  // namespace keel::cuda
