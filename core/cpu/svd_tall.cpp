#include "svd_tall.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "eigh_large_kernels.h"
#include "instantiate.h"
#include "scratch.h"
#include "svd_finish.h"

namespace keel::cpu {
namespace {

/// A slice and its part of U fit into the second cache, and n x n numbers are a small part of it.
constexpr std::int64_t rows_a_slice(std::int64_t n) {
  return std::max<std::int64_t>(16384 / n, 16 * n);
}
constexpr std::int64_t kWidest = 64;  // reflections are applied one by one
/// At least n rows must be this near to the largest: QR loses digits of smaller ones.
constexpr float kAlike = 32;

/// A tall matrix, or the transpose of a wide one, as m rows of n numbers.
template <typename T>
struct Rows {
  T* data;
  std::int64_t down, along;

  Rows(T* first, std::int64_t row_stride, bool wide)
      : data(first), down(wide ? 1 : row_stride), along(wide ? row_stride : 1) {}

  T& at(std::int64_t i, std::int64_t j) const { return data[i * down + j * along]; }
  void load(std::int64_t first, std::int64_t rows, std::int64_t n, std::remove_const_t<T>* to,
            std::int64_t stride) const {
    if (down == 1) {
      for (std::int64_t j = 0; j < n; ++j)
        std::copy_n(data + j * along + first, rows, to + j * stride);
      return;
    }
    constexpr std::int64_t kTile = 16;
    for (std::int64_t top = 0; top < rows; top += kTile)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = top; i < std::min(rows, top + kTile); ++i)
          to[j * stride + i] = data[(first + i) * down + j];
  }
  void store(std::int64_t first, std::int64_t rows, std::int64_t n, const T* from,
             std::int64_t stride) const {
    if (down == 1) {
      for (std::int64_t j = 0; j < n; ++j)
        std::copy_n(from + j * stride, rows, data + j * along + first);
      return;
    }
    constexpr std::int64_t kTile = 16;
    for (std::int64_t top = 0; top < rows; top += kTile)
      for (std::int64_t i = top; i < std::min(rows, top + kTile); ++i)
        for (std::int64_t j = 0; j < n; ++j) data[(first + i) * down + j] = from[j * stride + i];
  }
};

/// What is known of a slice.
template <typename T>
struct Slice {
  T largest = 0;  ///< NaN if a number is not finite
  std::int64_t zero_rows = 0;
  std::int64_t large_rows = 0;  ///< with an entry of at least an eighth of the largest
  int exponent = 0;             ///< its triangle is at unit size
};

template <typename T>
class TallSvd {
 public:
  TallSvd(Rectangles<const T> matrix, T* values, Rectangles<T> left, Rectangles<T> right,
          const Executor& executor)
      : matrix_(matrix),
        wide_(matrix.rows < matrix.columns),
        m_(std::max(matrix.rows, matrix.columns)),
        n_(std::min(matrix.rows, matrix.columns)),
        count_((m_ + rows_a_slice(n_) - 1) / rows_a_slice(n_)),
        from_(matrix.data, matrix.row_stride, wide_),
        to_(wide_ ? right.data : left.data, wide_ ? right.row_stride : left.row_stride, wide_),
        values_(values),
        left_(left),
        right_(right),
        executor_(executor),
        slices_(std::size_t(count_)),
        tau_(count_ * n_),
        triangles_(count_ * n_ * n_) {
    for (std::int64_t k = 0; k < count_; ++k) most_ = std::max(most_, begin(k + 1) - begin(k));
    stride_ = row_stride<T>(most_);
  }

  bool run() {
    executor_(count_, [&](std::int64_t k) { reduce(k); });
    std::int64_t zero_rows = 0, large_rows = 0;
    T largest = 0;
    for (const Slice<T>& slice : slices_) {
      if (!(slice.largest <= std::numeric_limits<T>::max())) return false;
      largest = std::max(largest, slice.largest);
      zero_rows += slice.zero_rows;
    }
    if (largest > 0 && 4 * zero_rows > 3 * m_) return without_zero_rows();
    for (const Slice<T>& slice : slices_)
      if (slice.largest >= largest * (8 / kAlike)) large_rows += slice.large_rows;
    if (large_rows < n_) return false;
    return solve_triangles(largest);
  }

 private:
  std::int64_t begin(std::int64_t k) const { return m_ * k / count_; }

  void reduce(std::int64_t k) {
    const std::int64_t first = begin(k), rows = begin(k + 1) - first;
    const Scratch<T> x(n_ * stride_);
    from_.load(first, rows, n_, x, stride_);
    for (std::int64_t j = 0; j < n_; ++j)
      std::fill(x + j * stride_ + rows, x + (j + 1) * stride_, T(0));
    Slice<T>& slice = slices_[std::size_t(k)];
    large_kernels<T>().tall_sizes(rows, n_, x, stride_, slice.largest, slice.zero_rows,
                                  slice.large_rows);
    if (!(slice.largest <= std::numeric_limits<T>::max())) return;
    std::frexp(slice.largest, &slice.exponent);
    for (std::int64_t j = 0; j < n_; ++j)
      large_kernels<T>().scale(rows, -slice.exponent, x + j * stride_, x + j * stride_);
    large_kernels<T>().tall_reduce(rows, n_, x, stride_, tau_ + k * n_, triangles_ + k * n_ * n_);
    to_.store(first, rows, n_, x, stride_);
  }

  bool solve_triangles(T largest) {
    int exponent = 0;
    std::frexp(largest, &exponent);
    for (std::int64_t k = 0; k < count_; ++k) {
      T* const mine = triangles_ + k * n_ * n_;
      large_kernels<T>().scale(n_ * n_, slices_[std::size_t(k)].exponent - exponent, mine, mine);
    }
    // QR keeps the digits of each column, but not where squares of its entries are too small.
    T least = std::numeric_limits<T>::infinity();
    for (std::int64_t j = 0; j < n_; ++j) {
      T size = 0;  // of the column of the triangles, and so of the matrix
      for (std::int64_t i = 0; i < count_ * n_; ++i)
        size = std::max(size, std::abs(triangles_[i * n_ + j]));
      least = std::min(least, size);
    }
    if (least < std::sqrt(std::numeric_limits<T>::min()) * T(1e7)) return false;
    const std::int64_t rows = count_ * n_;
    const Scratch<T> u(rows * n_), v(n_ * n_);
    svd<T>(contiguous<const T>(triangles_, 1, rows, n_), values_, contiguous<T>(u, 1, rows, n_),
           contiguous<T>(v, 1, n_, n_), nullptr, executor_);
    large_kernels<T>().scale(n_, exponent, values_, values_);
    executor_(count_, [&](std::int64_t k) { expand(k, u + k * n_ * n_); });
    store_short_side(v);
    fix_signs();
    return true;
  }

  void expand(std::int64_t k, const T* w) {
    const std::int64_t first = begin(k), rows = begin(k + 1) - first;
    const Scratch<T> x(n_ * stride_), y(n_ * stride_), scratch(2 * n_ * n_);
    to_.load(first, rows, n_, x, stride_);
    for (std::int64_t j = 0; j < n_; ++j)
      std::fill(x + j * stride_ + rows, x + (j + 1) * stride_, T(0));
    large_kernels<T>().tall_expand(rows, n_, x, stride_, tau_ + k * n_, w, y, scratch);
    to_.store(first, rows, n_, y, stride_);
  }

  /// The entry of largest magnitude of each column of U is positive. U is the long side unless the
  /// matrix is wide.
  void fix_signs() {
    std::vector<T> peak(std::size_t(n_), T(0));
    const std::int64_t rows = wide_ ? n_ : m_;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n_; ++j) {
        const T x = left_.data[i * left_.row_stride + j];
        if (std::abs(x) > std::abs(peak[std::size_t(j)])) peak[std::size_t(j)] = x;
      }
    if (std::none_of(peak.begin(), peak.end(), [](T x) { return x < 0; })) return;
    const auto turn = [&](const Rectangles<T>& all, bool by_row) {
      for (std::int64_t i = 0; i < all.rows; ++i)
        for (std::int64_t j = 0; j < all.columns; ++j)
          if (peak[std::size_t(by_row ? i : j)] < 0) {
            T& x = all.data[i * all.row_stride + j];
            x = T(0) - x;  // no zero becomes -0
          }
    };
    turn(left_, false);
    turn(right_, true);
  }

  /// Solves the rows with numbers, and as many others as make a square matrix.
  bool without_zero_rows() {
    std::vector<std::int64_t> kept, zero;
    for (std::int64_t i = 0; i < m_; ++i) {
      bool is_zero = true;
      for (std::int64_t j = 0; j < n_; ++j) is_zero &= from_.at(i, j) == 0;
      if (!is_zero)
        kept.push_back(i);
      else if (std::int64_t(zero.size()) < n_)
        zero.push_back(i);
    }
    for (std::size_t i = 0; std::int64_t(kept.size()) < n_; ++i) kept.push_back(zero[i]);
    const auto rows = std::int64_t(kept.size());
    const Scratch<T> some(rows * n_), u(rows * n_), v(n_ * n_);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n_; ++j) some[i * n_ + j] = from_.at(kept[std::size_t(i)], j);
    svd<T>(contiguous<const T>(some, 1, rows, n_), values_, contiguous<T>(u, 1, rows, n_),
           contiguous<T>(v, 1, n_, n_), nullptr, executor_);
    for (std::int64_t i = 0; i < (wide_ ? n_ : m_); ++i)
      std::fill_n((wide_ ? right_ : left_).data + i * (wide_ ? right_ : left_).row_stride,
                  wide_ ? m_ : n_, T(0));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n_; ++j) to_.at(kept[std::size_t(i)], j) = u[i * n_ + j];
    store_short_side(v);
    fix_signs();
    return true;
  }

  void store_short_side(const T* v) {
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j)
        if (wide_)
          left_.data[j * left_.row_stride + i] = v[i * n_ + j];
        else
          right_.data[i * right_.row_stride + j] = v[i * n_ + j];
  }

  Rectangles<const T> matrix_;
  bool wide_;
  std::int64_t m_, n_, count_, most_ = 0, stride_ = 0;
  Rows<const T> from_;
  Rows<T> to_;
  T* values_;
  Rectangles<T> left_, right_;
  const Executor& executor_;
  std::vector<Slice<T>> slices_;
  Scratch<T> tau_, triangles_;
};

}  // namespace

bool is_tall(std::int64_t m, std::int64_t n) {
  const std::int64_t rows = std::max(m, n), columns = std::min(m, n);
  return columns > 0 && columns <= kWidest && rows > rows_a_slice(columns);
}

template <typename T>
bool svd_tall(Rectangles<const T> matrix, T* values, Rectangles<T> left, Rectangles<T> right,
              const Executor& executor) {
  return TallSvd<T>(matrix, values, left, right, executor).run();
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_tall, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
