#pragma once

#include "keel/eigh.h"

namespace keel::cpu {

/// Solves one matrix, real or complex, with its steps distributed over the executor: blocked reduction to
/// tridiagonal form, divide and conquer, back-transformation. All of it but half of the reduction
/// is matrix products. Without `vectors`, QL on the tridiagonal matrix. n >= 2. Returns by_fallback, with nothing written, if QL needs more than
/// max_sweeps for one of the smallest subproblems.
template <typename E>
EighStatus eigh_large(std::int64_t n, const E* matrix, std::int64_t row_stride, EighOrder order,
                      RealOf<E>* values, E* vectors, std::int64_t vector_stride, int max_sweeps,
                      const Executor& executor);

}  // namespace keel::cpu
