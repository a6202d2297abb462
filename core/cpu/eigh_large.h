#pragma once

#include "keel/eigh.h"

namespace keel::cpu {

/// One matrix, its steps spread over the executor: reduced to tridiagonal form by panels, divide and conquer, and
/// the vectors taken back, all but half of the reduction by products of matrices. For n >= 2. by_fallback if QL, which
/// solves the smallest parts, needs more than max_sweeps: then nothing was written.
template <typename T>
EighStatus eigh_large(std::int64_t n, const T* matrix, std::int64_t row_stride, EighOrder order,
                      T* values, T* vectors, std::int64_t vector_stride, int max_sweeps,
                      const Executor& executor);

}  // namespace keel::cpu
