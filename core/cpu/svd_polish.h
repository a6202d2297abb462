#pragma once

// Singular values from the eigenvectors of A^T A (core/formulas/polish_reach.h). One matrix over all lanes,
// in padded rows with zero padding.

#include "eigh_scaling.h"
#include "formulas/polish_reach.h"
#include "keel/svd.h"
#include "kernels.h"
#include "multiply.h"
#include "scratch_gap.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
class PolishSvd {
  using V = Vec<T>;
  using M = Mask<T>;
  static constexpr int kWidth = kLanes<T>, kMost = 6;
  static constexpr T kNegligible = kEpsilon<T> * kEpsilon<T> * kEpsilon<T>;
  using Reach = PolishReach<T>;

 public:
  static std::int64_t scratch_size(std::int64_t m, std::int64_t n) {
    const std::int64_t stride = padded<T>(n);
    return 2 * with_gap<T>((m + n) * stride) + 2 * with_gap<T>(n * stride) +
           5 * with_gap<T>(stride) + with_gap<T>(m);
  }

  /// For matrix `index`, or its transpose if it is wide.
  PolishSvd(Rectangles<const T> matrices, std::int64_t index, T* scratch)
      : wide_(matrices.rows < matrices.columns),
        m_(wide_ ? matrices.columns : matrices.rows),
        n_(wide_ ? matrices.rows : matrices.columns),
        down_(wide_ ? 1 : matrices.row_stride),
        along_(wide_ ? matrices.row_stride : 1),
        source_(matrices[index]),
        stride_(padded<T>(n_)),
        width_((n_ + kWidth - 1) / kWidth * kWidth),
        run_(summed_at_once(m_, 1)),
        x_(take(scratch, (m_ + n_) * stride_)),
        other_(take(scratch, (m_ + n_) * stride_)),
        k_(take(scratch, n_ * stride_)),
        k_square_(take(scratch, n_ * stride_)),
        square_(take(scratch, stride_)),
        size_(take(scratch, stride_)),
        peak_(take(scratch, stride_)),
        sign_(take(scratch, stride_)),
        order_(take(scratch, stride_)),
        row_size_(take(scratch, m_)) {}

  /// Computes A^T A at unit size, with rows n apart, and the exponent that was taken out. Returns
  /// false if A is not finite, zero or steep.
  bool square_up(int& exponent, T* square) {
    load(0);
    V not_finite = {};
    for (std::int64_t j = 0; j < width_; j += kWidth) at(size_, j) = V{};
    T largest = 0;
    for (std::int64_t i = 0; i < m_; ++i) {
      V top = {};
      for (std::int64_t j = 0; j < width_; j += kWidth) {
        const V x = at(x_ + i * stride_, j), size = magnitude<T>(x);
        not_finite += x * T(0);  // 0 for finite numbers, NaN for the rest
        V& column = at(size_, j);
        column = size > column ? size : column;
        top = size > top ? size : top;
      }
      T most = 0;
      for (int lane = 0; lane < kWidth; ++lane) most = top[lane] > most ? top[lane] : most;
      row_size_[i] = most;
      largest = most > largest ? most : largest;
    }
    if (sum_lanes<T>(not_finite) != 0 || !(largest > 0)) return false;
    const T least = largest / kSteepFrom;
    // Rows and columns of zeros do no harm: A^T A has them exactly.
    std::int64_t spare_rows = m_ - n_, small_rows = 0, small_columns = 0;
    for (std::int64_t i = 0; i < m_; ++i) {
      spare_rows -= row_size_[i] == 0;
      small_rows += row_size_[i] > 0 && row_size_[i] < least;
    }
    for (std::int64_t j = 0; j < n_; ++j) {
      spare_rows += size_[j] == 0;
      small_columns += size_[j] > 0 && size_[j] < least;
    }
    if (small_rows > (spare_rows > 0 ? spare_rows : 0) || small_columns > 0) return false;
    __builtin_frexp(double(largest), &exponent);
    load(exponent);
    multiply_columns();
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j) square[i * n_ + j] = k_[i * stride_ + j];
    return true;
  }

  /// Starts from the eigenvectors of that matrix, with rows n apart, in the order of their values.
  /// Returns whether the columns are now orthogonal.
  bool solve(int exponent, const T* vectors, const SmallEigh<T>& eigh) {
    exponent_ = exponent;
    load(exponent);
    const std::int64_t most_rank = rows_with_numbers();
    for (std::int64_t i = 0; i < n_; ++i) {
      T* const row = x_ + (m_ + i) * stride_;
      for (std::int64_t j = 0; j < n_; ++j) row[j] = vectors[i * n_ + j];
      for (std::int64_t j = n_; j < stride_; ++j) row[j] = 0;
    }
    // X = A J. J is copied.
    const T* const x = x_;
    T* const other = other_;
    const std::int64_t stride = stride_, m = m_;
    product<T>([=](std::int64_t) { return m; }, n_, n_,
               [=](std::int64_t i, std::int64_t k) { return x[i * stride + k]; }, x + m * stride,
               stride,
               [=](std::int64_t i, std::int64_t j, V sum) { at(other + i * stride, j) = sum; });
    __builtin_memcpy(other + m * stride, x + m * stride, std::size_t(n_ * stride) * sizeof(T));
    swap();
    std::int64_t head = 0;
    for (int tail = 0; tail < kMost; ++tail) {
      const std::int64_t begin = tail_after(head);
      if (begin == n_) break;
      if (!clear_tail(head, begin)) return false;
      // Beyond a low rank only noise remains. If rows of A are equal, the noise has low rank too, and
      // rotating it would only reveal the next tail. If it fills at most half of the columns, it is
      // rotated once anyway, which is faster than completing U.
      drop_negligible(begin, 2 * begin < n_ ? kEpsilon<T> * kEpsilon<T> : kNegligible);
      if (!turn_tail(begin, eigh)) return false;
      head = begin;
    }
    for (int step = 0; step < kMost; ++step) {
      drop_negligible(step == 0 ? 0 : n_, kNegligible);
      drop_negligible(most_rank, kEpsilon<T> * kEpsilon<T> * T(n_));
      const T angles = measure();
      if (angles == 0) return true;
      if (!(angles <= Reach::kThird)) return false;
      if (angles <= Reach::kFirst) {
        turn(k_, 1);
        continue;
      }
      multiply<T>(n_, k_, k_, k_square_);
      if (angles <= Reach::kSecond) {
        for (std::int64_t i = 0; i < n_; ++i)
          for (std::int64_t j = 0; j < width_; j += kWidth)
            at(k_ + i * stride_, j) += T(0.5) * at(k_square_ + i * stride_, j);
        turn(k_, 1);
        continue;
      }
      turn(k_, 1);
      turn(k_square_, T(0.5));
      multiply<T>(n_, k_square_, k_square_, k_);
      turn(k_, T(0.375));
    }
    return false;
  }

  /// Stores the values, U and V^T in descending order, with the signs of the contract. Vectors of
  /// zero values that X would give are zero.
  void store(T* values, T* left, std::int64_t left_stride, T* right, std::int64_t right_stride) {
    // U comes from X if the matrix is tall, and from J if it is wide.
    const T *const u = wide_ ? x_ + m_ * stride_ : x_, *const v = wide_ ? x_ : x_ + m_ * stride_;
    const std::int64_t u_rows = wide_ ? n_ : m_, v_rows = wide_ ? m_ : n_;
    square_columns();
    for (std::int64_t j = 0; j < width_; j += kWidth) {
      V peak = {}, size = {};
      for (std::int64_t i = 0; i < u_rows; ++i) {
        const V x = at(u + i * stride_, j), own = magnitude<T>(x);
        const M larger = own > size;
        size = larger ? own : size;
        peak = larger ? x : peak;
      }
      at(size_, j) = square_root<T>(at(square_, j));
      at(sign_, j) = peak < 0 ? broadcast(T(-1)) : broadcast(T(1));
    }
    auto* const order = reinterpret_cast<typename IntegerOf<T>::type*>(order_);
    sort(EighOrder::descending, n_, size_, 1, order);
    const PowerOfTwo<T> scale(exponent_);
    T *const of_u = square_, *const of_v = peak_;  // the factors of the columns of U and V
    for (std::int64_t j = 0; j < n_; ++j) {
      values[j] = scale * size_[order[j]];
      const T unit = size_[j] > 0 ? sign_[j] / size_[j] : T(0);
      of_u[j] = wide_ ? sign_[j] : unit;
      of_v[j] = wide_ ? unit : sign_[j];
    }
    for (std::int64_t i = 0; i < u_rows; ++i)
      for (std::int64_t c = 0; c < n_; ++c)
        left[i * left_stride + c] = of_u[order[c]] * u[i * stride_ + order[c]] + T(0);
    constexpr std::int64_t kTile = 16;  // rows whose lines stay in cache while they become columns
    for (std::int64_t top = 0; top < v_rows; top += kTile)
      for (std::int64_t c = 0; c < n_; ++c)
        for (std::int64_t i = top; i < v_rows && i < top + kTile; ++i)
          right[c * right_stride + i] = of_v[order[c]] * v[i * stride_ + order[c]] + T(0);
  }

 private:
  static V& at(T* row, std::int64_t j) { return *reinterpret_cast<V*>(row + j); }
  static const V& at(const T* row, std::int64_t j) { return *reinterpret_cast<const V*>(row + j); }
  void swap() {
    T* const kept = x_;
    x_ = other_;
    other_ = kept;
  }

  void load(int exponent) {
    const PowerOfTwo<T> scale(-exponent);
    for (std::int64_t i = 0; i < m_; ++i) {
      T* const row = x_ + i * stride_;
      const T* const from = source_ + i * down_;
      if (along_ == 1)  // the compiler then takes whole vectors
        for (std::int64_t j = 0; j < n_; ++j) row[j] = scale * from[j];
      else
        for (std::int64_t j = 0; j < n_; ++j) row[j] = scale * from[j * along_];
      for (std::int64_t j = n_; j < stride_; ++j) row[j] = 0;
    }
  }

  /// The rows of A that are not all zero.
  std::int64_t rows_with_numbers() const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < m_; ++i) {
      M any_here = {};
      for (std::int64_t j = 0; j < width_; j += kWidth) any_here |= at(x_ + i * stride_, j) != 0;
      count += any<T>(any_here);
    }
    return count;
  }

  /// K = X^T X
  void multiply_columns() { multiply_columns(x_, n_, stride_); }

  /// The same for n columns with rows `stride` apart. K then has that stride too.
  void multiply_columns(const T* columns, std::int64_t n, std::int64_t stride) {
    T* const out = k_;
    for (std::int64_t first = 0; first < m_; first += run_) {
      const T* const x = columns + first * stride;
      product<T>([=](std::int64_t end) { return end < n ? end : n; },  // on and above the diagonal
                 m_ - first < run_ ? m_ - first : run_, n,
                 [=](std::int64_t i, std::int64_t k) { return x[k * stride + i]; }, x, stride,
                 [=](std::int64_t i, std::int64_t j, V sum) {
                   V& entry = at(out + i * stride, j);
                   entry = first == 0 ? sum : entry + sum;
                 });
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) out[i * stride + j] = out[j * stride + i];
  }

  /// X and J += factor X K, factor J K
  void turn(const T* by, T factor) {
    const T* const x = x_;
    T* const other = other_;
    const std::int64_t stride = stride_, rows = m_ + n_;
    product<T>([=](std::int64_t) { return rows; }, n_, n_,
               [=](std::int64_t i, std::int64_t k) { return x[i * stride + k]; }, by, stride,
               [=](std::int64_t i, std::int64_t j, V sum) {
                 at(other + i * stride, j) = at(x + i * stride, j) + factor * sum;
               });
    swap();
  }

  /// Sets square_ to the squared lengths of the columns of X.
  void square_columns() {
    for (std::int64_t j = 0; j < width_; j += kWidth) {
      V square = {};
      for (std::int64_t first = 0; first < m_; first += run_) {
        V sum = {};
        for (std::int64_t i = first; i < m_ && i < first + run_; ++i)
          sum += at(x_ + i * stride_, j) * at(x_ + i * stride_, j);
        square += sum;
      }
      at(square_, j) = square;
    }
  }

  /// The first column that is so much shorter than column `begin` that the inner products of the
  /// columns from `begin` on do not determine its direction. n if there is none, or none after it.
  std::int64_t tail_after(std::int64_t begin) {
    square_columns();
    for (std::int64_t j = begin + 1; j + 1 < n_; ++j)
      if (square_[j] > 0 && square_[j] < Reach::tail(T(n_)) * square_[begin]) return j;
    return n_;
  }

  /// Makes the columns of X from `begin` on orthogonal to the longer ones from `head` to `begin`, by
  /// a rotation with small angles C between the two sets: three shears, exact up to C^3 / 8. Returns
  /// false if the angles are not small enough for that.
  bool clear_tail(std::int64_t head, std::int64_t begin) {
    T *const x = x_, *const c = k_, *const back = k_square_;  // C, and -C^T / 2
    const std::int64_t stride = stride_, heads = begin - head, tails = n_ - begin;
    const std::int64_t from = begin / kWidth * kWidth;  // products start at whole vectors
    for (std::int64_t first = 0; first < m_; first += run_) {
      const T* const rows = x + first * stride;
      product<T>([=](std::int64_t) { return heads; }, m_ - first < run_ ? m_ - first : run_,
                 n_ - from,
                 [=](std::int64_t i, std::int64_t k) { return rows[k * stride + head + i]; },
                 rows + from, stride,
                 [=](std::int64_t i, std::int64_t j, V sum) {
                   V& entry = at(c + i * stride, from + j);
                   entry = first == 0 ? sum : entry + sum;
                 });
    }
    for (std::int64_t i = 0; i < tails * stride; ++i) back[i] = 0;
    T angles = 0;
    for (std::int64_t i = 0; i < heads; ++i)
      for (std::int64_t j = from; j < stride; ++j) {
        T& entry = c[i * stride + j];
        entry = j < begin || j >= n_ ? T(0) : -entry / (square_[head + i] - square_[j]);
        if (j >= begin && j < n_) back[(j - begin) * stride + head + i] = entry / -2;
        angles += entry * entry;
      }
    if (!(angles <= Reach::kShear)) return false;
    shear(begin, tails, back, head);
    shear(head, heads, c, begin);
    shear(begin, tails, back, head);
    return true;
  }

  /// Adds `count` columns of X and J, from `begin` on, times the rows of `by` to columns `to` and
  /// further, where `by` is not zero.
  void shear(std::int64_t begin, std::int64_t count, const T* by, std::int64_t to) {
    T* const x = x_;
    const std::int64_t stride = stride_, rows = m_ + n_, from = to / kWidth * kWidth,
                       end = begin > to ? begin : n_;
    product<T>([=](std::int64_t) { return rows; }, count, end - from,
               [=](std::int64_t i, std::int64_t k) { return x[i * stride + begin + k]; }, by + from,
               stride,
               [=](std::int64_t i, std::int64_t j, V sum) { at(x + i * stride, from + j) += sum; });
  }

  /// Rotates the columns of X from `begin` on, and J with them, by the eigenvectors of their Gram
  /// matrix. Afterwards their directions are accurate relative to the longest of them.
  bool turn_tail(std::int64_t begin, const SmallEigh<T>& eigh) {
    const std::int64_t count = n_ - begin, stride = padded<T>(count), rows = m_ + n_;
    const auto copy = [&](bool back) {
      for (std::int64_t i = 0; i < rows; ++i) {
        T *const own = x_ + i * stride_ + begin, *const tail = other_ + i * stride;
        for (std::int64_t j = 0; j < count; ++j) (back ? own : tail)[j] = (back ? tail : own)[j];
        for (std::int64_t j = count; !back && j < stride; ++j) tail[j] = 0;
      }
    };
    copy(false);
    T largest = 0;
    for (std::int64_t j = begin; j < n_; ++j) largest = square_[j] > largest ? square_[j] : largest;
    if (largest == 0) return true;
    multiply_columns(other_, count, stride);
    const T unit = T(1) / largest;
    for (std::int64_t i = 0; i < count * stride; ++i) k_[i] *= unit, k_square_[i] = 0;
    if (!eigh(count, k_, k_square_, stride)) return false;
    const T *const x = x_ + begin, *const by = k_square_;
    T* const turned = other_;
    const std::int64_t own_stride = stride_;
    product<T>([=](std::int64_t) { return rows; }, count, count,
               [=](std::int64_t i, std::int64_t k) { return x[i * own_stride + k]; }, by, stride,
               [=](std::int64_t i, std::int64_t j, V sum) { at(turned + i * stride, j) = sum; });
    copy(true);
    return true;
  }

  /// Clears columns of X from `begin` on whose squared length is at most this share of the largest.
  /// Their singular values become zero: they are far below rounding, or beyond the rank of A.
  void drop_negligible(std::int64_t begin, T share) {
    if (begin >= n_) return;
    square_columns();
    T largest = 0;
    for (std::int64_t j = 0; j < n_; ++j) largest = square_[j] > largest ? square_[j] : largest;
    for (std::int64_t j = begin; j < n_; ++j) {
      if (square_[j] > share * largest) continue;
      for (std::int64_t i = 0; i < m_; ++i) x_[i * stride_ + j] = 0;
      square_[j] = 0;
    }
  }

  /// Computes K and returns the sum of its squares: zero if the columns are orthogonal, NaN if one
  /// of them is negligible, but not zero.
  T measure() {
    multiply_columns();
    for (std::int64_t j = 0; j < n_; ++j) {
      square_[j] = k_[j * stride_ + j];
      k_[j * stride_ + j] = 0;
    }
    for (std::int64_t j = n_; j < width_; ++j) square_[j] = 1;  // padding: never small or rotated
    for (std::int64_t j = 0; j < width_; j += kWidth) at(size_, j) = square_root<T>(at(square_, j));
    const T tolerance = kEpsilon<T> * square_root<T>(broadcast(T(n_)))[0];
    V sum = {};
    M turns = {}, small = {};
    for (std::int64_t i = 0; i < n_; ++i) {
      T* const row = k_ + i * stride_;
      for (std::int64_t j = 0; j < width_; j += kWidth) {
        const V w = at(row, j), own = at(square_, j), gap = square_[i] - own,
                reach = magnitude<T>(w);
        const V most = tolerance * size_[i] * at(size_, j);
        // Include pairs just below the bound, where that is safe, so that rounding does not lift
        // them above it later.
        const M over = reach > most,
                nearly = (reach > T(0.25) * most) & (T(1024) * reach < magnitude<T>(gap));
        const V angle = over | nearly ? -w / gap : V{};
        at(row, j) = angle;
        sum += angle * angle;
        turns |= over;
        small |= ~(own > kNegligible * square_[i]) & (own != 0);
      }
    }
    if (any<T>(small)) return T(__builtin_nan(""));
    return any<T>(turns) ? sum_lanes<T>(sum) : T(0);
  }

  bool wide_;
  std::int64_t m_, n_, down_, along_;
  const T* source_;
  std::int64_t stride_, width_;  ///< distance of rows, and the part of a row that is used
  std::int64_t run_;             ///< rows of a column that are summed at once
  int exponent_ = 0;
  T *x_, *other_;  ///< X stacked on J, m + n rows, and a second buffer of that size
  T *k_, *k_square_, *square_, *size_, *peak_, *sign_, *order_, *row_size_;
};

template <typename T>
std::int64_t svd_polish_scratch(std::int64_t m, std::int64_t n) {
  return PolishSvd<T>::scratch_size(m < n ? n : m, m < n ? m : n);
}

template <typename T>
bool svd_square(std::int64_t index, Rectangles<const T> matrices, int& exponent, T* square,
                T* scratch) {
  return PolishSvd<T>(matrices, index, scratch).square_up(exponent, square);
}

template <typename T>
bool svd_polish(std::int64_t index, Rectangles<const T> matrices, int exponent, const T* vectors,
                const SmallEigh<T>& eigh, T* values, Rectangles<T> left, Rectangles<T> right,
                T* scratch) {
  PolishSvd<T> solver(matrices, index, scratch);
  if (!solver.solve(exponent, vectors, eigh)) return false;
  const std::int64_t k = matrices.rows < matrices.columns ? matrices.rows : matrices.columns;
  solver.store(values + index * k, left[index], left.row_stride, right[index], right.row_stride);
  return true;
}

}  // namespace keel::cpu::KEEL_ISA
