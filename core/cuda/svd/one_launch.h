#pragma once

// All steps of polish_block.h in one launch, for few matrices.

#include "cuda/svd/polish_results.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel::cuda {

/// Results are the same, bit by bit, as those of separate launches with this many threads per matrix.
template <typename T>
void svd_in_one_launch(Rectangles<const T> matrices, const PolishLayout<T>& layout, int threads,
                       const PolishResults<T>& results, const Stream& stream);

}  // namespace keel::cuda
