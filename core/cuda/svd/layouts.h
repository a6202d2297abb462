#pragma once

// How svd lays out a matrix in the memory of the threads that share it.

#include <cstdint>

#include "host_device.h"
#include "keel/matrices.h"

namespace keel::cuda {

/// Neighbouring numbers that a lane reads and writes at once.
template <typename T>
struct alignas(16) SvdPack {
  static constexpr int kCount = 16 / int(sizeof(T));
  T at[kCount];
};

/// The memory of polish/math.h, in numbers of type T. A tile has `wide` columns.
template <typename T>
struct PolishLayout {
  static constexpr int kPack = SvdPack<T>::kCount;
  int m, n, rows, columns, step, angle_step;

  KEEL_HOST_DEVICE PolishLayout(int tall, int small, int wide)
      : m(tall),
        n(small),
        rows((tall + kPack - 1) / kPack * kPack),
        columns(up(small, wide > kPack ? wide : kPack)),
        step(apart(rows + columns)),
        angle_step(apart(columns)) {}

  KEEL_HOST_DEVICE static int up(int length, int unit) { return (length + unit - 1) / unit * unit; }
  /// Pads so that eight neighbouring columns start in different banks.
  KEEL_HOST_DEVICE static int apart(int length) {
    return length / kPack % 2 == 0 ? length + kPack : length;
  }
  /// Sizes of X over J, and of K.
  KEEL_HOST_DEVICE std::int64_t stack() const { return std::int64_t(columns) * step; }
  KEEL_HOST_DEVICE std::int64_t angles() const { return std::int64_t(columns) * angle_step; }
  KEEL_HOST_DEVICE std::int64_t numbers() const {
    return stack() + angles() + 3 * columns + columns;
  }
};

/// The memory of jacobi/math.h, in numbers of type T and in ints.
template <typename T>
struct SvdLayout {
  static constexpr int kPack = SvdPack<T>::kCount;
  /// Up to this many rows are sorted by size, because their sizes are kept beside the matrix.
  static constexpr int kMostSorted = 1024;

  int m, n, sorted, half, rotated_step, column_step;

  KEEL_HOST_DEVICE SvdLayout(int rows, int columns)
      : m(rows),
        n(columns),
        sorted(rows <= kMostSorted ? rows : 0),
        half(packed(columns)),
        rotated_step(apart(2 * half)),
        column_step(apart(packed(rows))) {}

  KEEL_HOST_DEVICE static int packed(int length) { return (length + kPack - 1) / kPack * kPack; }
  /// Pads so that columns start in different banks.
  KEEL_HOST_DEVICE static int apart(int length) {
    return length * int(sizeof(T)) % 128 == 0 ? length + kPack : length;
  }
  /// Sizes of R^T over J; of Q's reflectors; of U, if it is longer than J.
  KEEL_HOST_DEVICE std::int64_t rotated() const { return std::int64_t(n) * rotated_step; }
  KEEL_HOST_DEVICE std::int64_t columns() const { return std::int64_t(n) * column_step; }
  KEEL_HOST_DEVICE std::int64_t left() const { return m > n ? columns() : 0; }
  KEEL_HOST_DEVICE int numbers() const { return packed(9 * n + sorted); }
  KEEL_HOST_DEVICE int places() const { return 2 * n + sorted; }
  /// The bytes of the numbers and places, which are always in shared memory if a block solves the matrix.
  std::int64_t base_bytes() const {
    return std::int64_t(numbers()) * std::int64_t(sizeof(T)) +
           (places() * std::int64_t(sizeof(int)) + 15) / 16 * 16;
  }
};

/// A matrix or its transpose, such that it is not wider than tall.
template <typename T>
struct SvdSource {
  const T* data;
  std::int64_t down, along;  ///< strides from one row, and one column, to the next

  KEEL_HOST_DEVICE T operator()(std::int64_t i, std::int64_t j) const {
    return data[i * down + j * along];
  }
};

/// Matrix b, transposed if it is wider than tall.
template <typename T>
KEEL_HOST_DEVICE SvdSource<T> upright(const Rectangles<const T>& matrices, std::int64_t b) {
  const bool wide = matrices.rows < matrices.columns;
  return {matrices[b], wide ? 1 : matrices.row_stride, wide ? matrices.row_stride : 1};
}

}  // namespace keel::cuda
