#include "svd_large.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "eigh_large_back.h"
#include "instantiate.h"
#include "svd_bidiagonal.h"
#include "svd_divide.h"

namespace keel::cpu {

template <typename T>
bool svd_large(Rectangles<const T> matrices, std::int64_t index, T* values, Rectangles<T> left,
               Rectangles<T> right, const Executor& executor) {
  const Lines<T> lines(matrices, index);
  const UnitScale<T> unit(lines.largest());
  if (!unit.finite) return false;
  const LargeKernels<T>& kernel = large_kernels<T>();
  const std::int64_t n = lines.count, length = lines.length_with_numbers(), longer = length - n + 1,
                     stride = row_stride<T>(n), far_stride = row_stride<T>(length);
  const Scratch<T> work(n * far_stride), near(n * stride), diagonal(n), off_diagonal(n), tau(n),
      near_tau(n), near_rows(n * stride), far_rows(n * stride);
  std::fill_n(work.data(), n * far_stride, T(0));
  lines.copy(0, length, unit, work.data(), far_stride);
  const typename Bidiagonalisation<T>::Reflectors kept{tau, near, near_tau};
  Bidiagonalisation<T>(n, length, work, diagonal, off_diagonal, executor, &kept).run();
  // Of the transpose, which is upper bidiagonal.
  DivideBidiagonal<T>(n, diagonal, off_diagonal, near_rows, far_rows, executor).run();

  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return diagonal[a] > diagonal[b]; });
  for (std::int64_t j = 0; j < n; ++j) values[j] = unit.up(diagonal[order[std::size_t(j)]]);

  const std::int64_t packed = std::max(BackTransformation<T>::scratch_size(n),
                                       BackTransformation<T>::scratch_size(n, longer));
  const Scratch<T> sorted(n * far_stride), first(packed), second(packed), sign(n);
  const bool tall = matrices.rows > matrices.columns;
  for (std::int64_t i = tall ? length : 0; i < (tall ? lines.length : n); ++i)
    if (tall)
      std::fill_n(left[index] + i * left.row_stride, n, T(0));
    else
      std::fill_n(right[index] + i * right.row_stride + length, lines.length - length, T(0));
  // U first, which determines the signs.
  for (const bool far : {tall, !tall}) {
    const std::int64_t entries = far ? length : n, step = far ? far_stride : stride;
    const BackTransformation<T> back(n, far ? work : near, far ? tau : near_tau, nullptr, first,
                                     second, far ? longer : 0);
    back.prepare(executor);
    const std::int64_t pieces = pieces_of(n, 24, 64);
    executor(pieces, [&](std::int64_t p) {
      const std::int64_t begin = n * p / pieces, end = n * (p + 1) / pieces;
      T* const rows = sorted + begin * step;
      for (std::int64_t j = begin; j < end; ++j) {
        T* const row = sorted + j * step;
        std::fill_n(row, entries - n, T(0));
        std::copy_n((far ? far_rows : near_rows) + order[std::size_t(j)] * stride, n,
                    row + entries - n);
      }
      back.turn(end - begin, rows);
      if (far == tall) {
        for (std::int64_t j = begin; j < end; ++j)
          sign[j] = kernel.sign(entries, sorted + j * step);
        kernel.store_columns(entries, end - begin, rows, step, sign + begin, left[index] + begin,
                             left.row_stride);
        return;
      }
      for (std::int64_t j = begin; j < end; ++j)
        for (std::int64_t i = 0; i < entries; ++i)
          right[index][j * right.row_stride + i] = sign[j] * sorted[j * step + i] + T(0);
    });
  }
  return true;
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_large, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
