#include "eigh_large.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "eigh_large_back.h"
#include "eigh_large_divide.h"
#include "eigh_large_kernels.h"
#include "eigh_large_reduce.h"
#include "formulas/order.h"
#include "instantiate.h"
#include "kernels.h"
#include "not_a_number.h"
#include "scratch.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kRowsAPiece = 64;

template <typename E>
constexpr std::int64_t kParts = kIsComplex<E> ? 2 : 1;

/// The real and imaginary parts of complex numbers, one after the other.
template <typename E>
const RealOf<E>* parts_of(const E* numbers) {
  return reinterpret_cast<const RealOf<E>*>(numbers);
}

/// The largest magnitude in the lower triangle, or NaN if an entry is not finite. Of complex entries,
/// that of their parts; the imaginary parts of the diagonal do not count.
template <typename E, typename T = RealOf<E>>
T largest_of_triangle(std::int64_t n, const E* matrix, std::int64_t stride,
                      const Executor& executor) {
  const std::int64_t pieces = (n + kRowsAPiece - 1) / kRowsAPiece;
  std::vector<T> found(static_cast<std::size_t>(pieces), T(0));
  executor(pieces, [&](std::int64_t p) {
    T& largest = found[std::size_t(p)];
    for (std::int64_t i = p * kRowsAPiece; i < std::min(n, (p + 1) * kRowsAPiece); ++i) {
      const T x = large_kernels<T>().largest(kParts<E> * i + 1, parts_of(matrix + i * stride));
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

/// Loads the lower triangle, scaled to unit size, and mirrors it within the diagonal blocks. The
/// imaginary parts are n rows after the real ones.
template <typename E, typename T = RealOf<E>>
void load_at_unit_size(std::int64_t n, const E* matrix, std::int64_t stride, int exponent,
                       T* scaled, const Executor& executor) {
  executor((n + kRowsAPiece - 1) / kRowsAPiece, [&](std::int64_t p) {
    const std::int64_t first = p * kRowsAPiece, end = std::min(n, first + kRowsAPiece);
    const std::int64_t to_stride = row_stride<T>(n);
    Scratch<T> both(kParts<E> * n);
    for (std::int64_t i = first; i < end; ++i)
      for (std::int64_t part = 0; part < kParts<E>; ++part) {
        T *const to = scaled + part * n * to_stride, *const row = to + i * to_stride;
        const T sign = part == 0 ? T(1) : T(-1);  // of the mirror image
        if constexpr (kParts<E> == 1) {
          large_kernels<T>().scale(i + 1, -exponent, matrix + i * stride, row);
        } else {
          if (part == 0)
            large_kernels<T>().scale(2 * i + 1, -exponent, parts_of(matrix + i * stride), both);
          both[2 * i + 1] = 0;
          for (std::int64_t j = 0; j <= i; ++j) row[j] = both[2 * j + part];
        }
        const std::int64_t block = i / kReach * kReach;
        std::fill(row + i + 1, row + block + kReach, T(0));
        for (std::int64_t j = block; j < i; ++j) to[j * to_stride + i] = sign * row[j];
      }
  });
}

}  // namespace

template <typename E>
EighStatus eigh_large(std::int64_t n, const E* matrix, std::int64_t row_stride, EighOrder order,
                      RealOf<E>* values, E* vectors, std::int64_t vector_stride, int max_sweeps,
                      const Executor& executor) {
  using T = RealOf<E>;
  const T largest = largest_of_triangle(n, matrix, row_stride, executor);
  if (std::isnan(largest)) {
    std::fill_n(values, n, largest);
    for (std::int64_t i = 0; vectors != nullptr && i < n; ++i)
      std::fill_n(vectors + i * vector_stride, n, not_a_number<E>());
    return EighStatus::not_finite;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);

  const std::int64_t square = n * cpu::row_stride<T>(n);
  const std::int64_t shared = std::max(square, BackTransformation<E>::scratch_size(n));
  const Scratch<T> reduced(kParts<E> * square), diagonal(n), off_diagonal(n), tau(n),
      phase(kParts<E> * n);
  load_at_unit_size<E, T>(n, matrix, row_stride, exponent, reduced, executor);
  Reduction<E>(n, reduced, diagonal, off_diagonal, tau, phase, executor).run();
  if (vectors == nullptr) {
    if (!large_kernels<T>().tridiagonal_values(n, diagonal, off_diagonal, max_sweeps))
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
  BackTransformation<E>(n, reduced, tau, phase, update, gathered)
      .run(rows, columns.data(), vectors, vector_stride, executor);
  return EighStatus::converged;
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_large, T)
KEEL_FOR_REAL(KEEL_STAGES)
KEEL_FOR_COMPLEX(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
