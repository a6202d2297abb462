#pragma once

// Stage: products of a large matrix with a few vectors.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"

namespace keel {

/// Which side of the matrix the vectors are on.
enum class Side : std::uint8_t { right, left };

namespace cpu {
/// Each vector is a row. Side::right: y = x A^T, so that row c of y is A times row c of x. Side::left: y = x A.
///
/// - A is (m, n), x is (count, n) or (count, m), and y the other of the two. Batches are of one size.
/// - A is read once, row by row, so that up to some tens of vectors cost little more than one.
/// - y must not overlap A or x. Empty sizes are valid.
template <typename T>
void thin_product(Rectangles<const T> a, Side side, Rectangles<const T> x, Rectangles<T> y,
                  const Executor& executor = serial());
}  // namespace cpu

}  // namespace keel
