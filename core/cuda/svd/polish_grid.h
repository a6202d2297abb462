#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// Whether matrices that polishes_in_block() rejects are worth solving by many blocks each.
template <typename T>
bool polishes_on_grid(std::int64_t rows, std::int64_t columns);

/// Like svd_polish_block, in global memory.
template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream);

}  // namespace keel::cuda
