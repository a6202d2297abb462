#pragma once

#include "keel/svd.h"

namespace keel::cuda {

/// For 0 < min(m, n) <= 512: one block per matrix, or one cluster of blocks. `is_left` is null, or says which
/// matrices to solve. The others' results stay unchanged.
template <typename T>
void svd_shared(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const bool* is_left, const Stream& stream);

}  // namespace keel::cuda
