#pragma once

// The eigenvectors of A^T A in one launch.

#include "cuda/svd/polish.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel::cuda {

/// Whether one launch does it: n <= 64, a block can hold both steps, and no multiprocessor gets more than one, because
/// a block takes more threads and shared memory than the second step alone. `threads` compute the product.
template <typename T>
bool squares_in_eigh(std::int64_t batch, const PolishLayout<T>& layout, int threads);

/// The same as TeamGram with this many threads and eigh, bit by bit: the vectors row by row, by descending values.
/// Marks in `is_left` the matrices that the method does not suit, and leaves their vectors unwritten. A next kernel that
/// is launched early may read the matrices before await_previous().
template <typename T>
void square_eigh(Rectangles<const T> matrices, const PolishLayout<T>& layout, int threads,
                 T* vectors, bool* is_left, const Stream& stream);

}  // namespace keel::cuda
