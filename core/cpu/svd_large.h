#pragma once

#include "keel/svd.h"

namespace keel::cpu {

/// Solves matrix `index` by reduction to bidiagonal form, divide and conquer and back-transformation, with its steps
/// distributed over the executor. Values and signs are as keel/svd.h promises; errors are relative to the largest
/// value. Returns false, with nothing written, if the matrix is not finite.
template <typename T>
bool svd_large(Rectangles<const T> matrices, std::int64_t index, T* values, Rectangles<T> left,
               Rectangles<T> right, const Executor& executor);

}  // namespace keel::cpu
