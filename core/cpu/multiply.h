#pragma once

// Products of small matrices with padded rows. Tiles of 4 rows by up to 2 vectors are held in
// registers.

#include "kernels.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

template <typename T, int ROWS, int VECTORS, typename Left, typename Put>
inline void product_tile(std::int64_t row, std::int64_t column, std::int64_t depth,
                         const Left& left, const T* right, std::int64_t stride, const Put& put) {
  Vec<T> sum[ROWS][VECTORS] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto* factors = reinterpret_cast<const Vec<T>*>(right + k * stride + column);
    for (int r = 0; r < ROWS; ++r)
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += left(row + r, k) * factors[v];
  }
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) put(row + r, column + v * kLanes<T>, sum[r][v]);
}

template <typename T, int VECTORS, typename Left, typename Put>
inline void product_columns(std::int64_t rows, std::int64_t column, std::int64_t depth,
                            const Left& left, const T* right, std::int64_t stride, const Put& put) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4)
    product_tile<T, 4, VECTORS>(row, column, depth, left, right, stride, put);
  for (; row < rows; ++row)
    product_tile<T, 1, VECTORS>(row, column, depth, left, right, stride, put);
}

/// Computes sum over k < depth of left(i, k) right(k, j), for i < rows(j) and all n columns j of
/// `right`, whose rows are `stride` apart. Calls put(i, j, vector) for each vector of sums that
/// starts at column j.
template <typename T, typename Left, typename Put, typename Rows>
inline void product(const Rows& rows, std::int64_t depth, std::int64_t n, const Left& left,
                    const T* right, std::int64_t stride, const Put& put) {
  constexpr std::int64_t kWidth = kLanes<T>;
  std::int64_t column = 0;
  for (; column + 2 * kWidth <= stride && column + kWidth < n; column += 2 * kWidth)
    product_columns<T, 2>(rows(column + 2 * kWidth), column, depth, left, right, stride, put);
  for (; column < n; column += kWidth)
    product_columns<T, 1>(rows(column + kWidth), column, depth, left, right, stride, put);
}

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* c) {
  const std::int64_t stride = padded<T>(n);
  product<T>([=](std::int64_t) { return n; }, n, n,
             [=](std::int64_t i, std::int64_t k) { return a[i * stride + k]; }, b, stride,
             [=](std::int64_t i, std::int64_t j, Vec<T> sum) {
               *reinterpret_cast<Vec<T>*>(c + i * stride + j) = sum;
             });
}

}  // namespace keel::cpu::KEEL_ISA
