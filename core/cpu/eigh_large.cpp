#include "eigh_large.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "eigh_large_back.h"
#include "eigh_large_divide.h"
#include "eigh_large_kernels.h"
#include "eigh_large_reduce.h"
#include "formulas/order.h"
#include "kernels.h"
#include "scratch.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kRowsAPiece = 64;

/// The largest magnitude in the lower triangle, or NaN if an entry is not finite.
template <typename T>
T largest_of_triangle(std::int64_t n, const T* matrix, std::int64_t stride,
                      const Executor& executor) {
  const std::int64_t pieces = (n + kRowsAPiece - 1) / kRowsAPiece;
  std::vector<T> found(static_cast<std::size_t>(pieces), T(0));
  executor(pieces, [&](std::int64_t p) {
    T& largest = found[std::size_t(p)];
    for (std::int64_t i = p * kRowsAPiece; i < std::min(n, (p + 1) * kRowsAPiece); ++i) {
      const T x = large_kernels<T>().largest(i + 1, matrix + i * stride);
      if (!(x <= largest)) largest = x;
      if (std::isnan(largest)) return;
    }
  });
  T largest = 0;
  for (const T x : found)
    if (!(x <= largest)) {
      largest = x;
      if (std::isnan(x)) break;
    }
  return largest;
}

/// Loads the lower triangle, scaled to unit size, and mirrors it within the diagonal blocks.
template <typename T>
void load_at_unit_size(std::int64_t n, const T* matrix, std::int64_t stride, int exponent,
                       T* scaled, const Executor& executor) {
  executor((n + kRowsAPiece - 1) / kRowsAPiece, [&](std::int64_t p) {
    const std::int64_t first = p * kRowsAPiece, end = std::min(n, first + kRowsAPiece);
    const std::int64_t to_stride = row_stride<T>(n);
    for (std::int64_t i = first; i < end; ++i) {
      T* const row = scaled + i * to_stride;
      large_kernels<T>().scale(i + 1, -exponent, matrix + i * stride, row);
      const std::int64_t block = i / kReach * kReach;
      std::fill(row + i + 1, row + block + kReach, T(0));
      for (std::int64_t j = block; j < i; ++j) scaled[j * to_stride + i] = row[j];
    }
  });
}

/// The eigenvalues replace the diagonal, unsorted. Returns false if QL gave up.
template <typename T>
bool values_of_tridiagonal(std::int64_t n, T* diagonal, T* off_diagonal, int max_sweeps) {
  const std::int64_t capacity = 8 * n, most_sweeps = 64;  // rotations are not kept
  Scratch<T> rotations(2 * capacity);
  Scratch<typename QlProgress<T>::Sweep> sweeps(most_sweeps);
  off_diagonal[n - 1] = 0;
  QlProgress<T> progress{.n = n,
                         .diagonal = diagonal,
                         .off_diagonal = off_diagonal,
                         .max_sweeps = max_sweeps,
                         .blocks = nullptr,
                         .block_count = 0,
                         .cosine = rotations,
                         .sine = rotations + capacity,
                         .sweeps = sweeps,
                         .rotation_capacity = capacity,
                         .sweep_capacity = most_sweeps};
  while (!progress.finished) kernels<T>().iterate(progress);
  return !progress.unconverged;
}

}  // namespace

template <typename T>
EighStatus eigh_large(std::int64_t n, const T* matrix, std::int64_t row_stride, EighOrder order,
                      T* values, T* vectors, std::int64_t vector_stride, int max_sweeps,
                      const Executor& executor) {
  const T largest = largest_of_triangle(n, matrix, row_stride, executor);
  if (std::isnan(largest)) {
    std::fill_n(values, n, largest);
    for (std::int64_t i = 0; vectors != nullptr && i < n; ++i)
      std::fill_n(vectors + i * vector_stride, n, largest);
    return EighStatus::not_finite;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);

  const std::int64_t square = n * cpu::row_stride<T>(n);
  const std::int64_t shared = std::max(square, BackTransformation<T>::scratch_size(n));
  const Scratch<T> reduced(square), diagonal(n), off_diagonal(n), tau(n);
  load_at_unit_size<T>(n, matrix, row_stride, exponent, reduced, executor);
  Reduction<T>(n, reduced, diagonal, off_diagonal, tau, executor).run();
  if (vectors == nullptr) {
    if (!values_of_tridiagonal<T>(n, diagonal, off_diagonal, max_sweeps))
      return EighStatus::by_fallback;
    std::sort(diagonal.data(), diagonal + n, std::greater<T>());
    for (std::int64_t j = 0; j < n; ++j) values[j] = diagonal[place_in(order, n, j)] + T(0);
    large_kernels<T>().scale(n, exponent, values, values);
    return EighStatus::converged;
  }
  // One allocation each, because the allocator requests fresh pages for every block above 32 MB.
  const Scratch<T> rows(square), update(shared), gathered(shared);
  if (!Divide<T>(n, diagonal, off_diagonal, rows, update, gathered, max_sweeps, executor).run())
    return EighStatus::by_fallback;
  // Sort in descending order in both cases, stably, so that one order is the exact reverse of the
  // other.
  std::vector<int> sorted(static_cast<std::size_t>(n)), columns(sorted.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](int a, int b) { return diagonal[a] > diagonal[b]; });
  for (std::int64_t j = 0; j < n; ++j) {
    columns[std::size_t(j)] = sorted[std::size_t(place_in(order, n, j))];
    values[j] = diagonal[columns[std::size_t(j)]] + T(0);
  }
  large_kernels<T>().scale(n, exponent, values, values);
  BackTransformation<T>(n, reduced, tau, update, gathered)
      .run(rows, columns.data(), vectors, vector_stride, executor);
  return EighStatus::converged;
}

#define KEEL_INSTANTIATE(T)                                                               \
  template EighStatus eigh_large(std::int64_t, const T*, std::int64_t, EighOrder, T*, T*, \
                                 std::int64_t, int, const Executor&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cpu
