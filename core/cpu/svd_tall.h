#pragma once

#include "keel/svd.h"

namespace keel::cpu {

/// Whether matrices of this shape are worth slices (svd_tall).
bool is_tall(std::int64_t m, std::int64_t n);

/// Solves one matrix with many more rows than columns, or its transpose: slices of its rows that fit
/// into the cache become triangular by QR, the triangles are one shorter matrix, and Q of each slice
/// takes that one's left vectors to the matrix's. So the matrix is read twice, whatever its values. Rows
/// of zeros are left out if most are. Returns false, with anything in the results, if the matrix is not
/// finite, or if QR might lose digits: of small rows if fewer than n are large, and of columns whose
/// squares are out of range.
template <typename T>
bool svd_tall(Rectangles<const T> matrix, T* values, Rectangles<T> left, Rectangles<T> right,
              const Executor& executor);

}  // namespace keel::cpu
