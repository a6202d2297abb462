#pragma once

// Singular values from the eigenvectors of A^T A (core/formulas/polish_reach.h), where A may be the
// triangular factor of a steep matrix. One matrix over all lanes, in padded rows with zero padding.

#include "eigh_scaling.h"
#include "formulas/polish_reach.h"
#include "keel/svd.h"
#include "kernels.h"
#include "product.h"
#include "scratch_gap.h"
#include "svd_sweeps.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
class PolishSvd {
  using V = Vec<T>;
  using M = Mask<T>;
  static constexpr int kWidth = kLanes<T>, kMost = 8;
  using Reach = PolishReach<T>;

 public:
  static std::int64_t scratch_size(std::int64_t m, std::int64_t n) {
    const std::int64_t stride = stride_of(n);
    return 2 * with_gap<T>((m + n) * stride) + 2 * with_gap<T>(n * stride) +
           with_gap<T>(pack_size(m, n)) + 5 * with_gap<T>(stride) + with_gap<T>(m);
  }

  /// For matrix `index`, or its transpose if it is wide.
  PolishSvd(Rectangles<const T> matrices, std::int64_t index, T* scratch)
      : PolishSvd(matrices.rows < matrices.columns ? matrices.columns : matrices.rows,
                  matrices.rows < matrices.columns ? matrices.rows : matrices.columns,
                  matrices[index], matrices.rows < matrices.columns ? 1 : matrices.row_stride,
                  matrices.rows < matrices.columns ? matrices.row_stride : 1, scratch) {
    wide_ = matrices.rows < matrices.columns;
  }
  /// For m x n numbers, m >= n.
  PolishSvd(std::int64_t m, std::int64_t n, const T* source, std::int64_t down, std::int64_t along,
            T* scratch)
      : m_(m),
        n_(n),
        down_(down),
        along_(along),
        source_(source),
        stride_(stride_of(n_)),
        width_((n_ + kWidth - 1) / kWidth * kWidth),
        run_(summed_at_once(m_, 1)),
        x_(take(scratch, (m_ + n_) * stride_)),
        other_(take(scratch, (m_ + n_) * stride_)),
        k_(take(scratch, n_ * stride_)),
        k_square_(take(scratch, n_ * stride_)),
        packed_(take(scratch, pack_size(m_, n_))),
        square_(take(scratch, stride_)),
        size_(take(scratch, stride_)),
        peak_(take(scratch, stride_)),
        sign_(take(scratch, stride_)),
        order_(take(scratch, stride_)),
        row_size_(take(scratch, m_)) {}

  /// Computes A^T A at unit size, with rows n apart, and the exponent that was taken out. Returns
  /// false if A is not finite, zero or steep.
  bool square_up(int& exponent, T* square, const Helpers<T>& helpers) {
    helpers_ = &helpers;
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
    multiply_columns(0, n_);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j) square[i * n_ + j] = k_[i * stride_ + j];
    return true;
  }

  /// Starts from the eigenvectors of that matrix, with rows n apart, in the order of their values.
  /// Returns whether the columns are now orthogonal.
  bool solve(int exponent, const T* vectors, const Helpers<T>& helpers) {
    helpers_ = &helpers;
    exponent_ = exponent;
    load(exponent);
    const std::int64_t most_rank = rows_with_numbers();
    for (std::int64_t i = 0; i < n_; ++i) {
      T* const row = x_ + (m_ + i) * stride_;
      for (std::int64_t j = 0; j < n_; ++j) row[j] = vectors[i * n_ + j];
      for (std::int64_t j = n_; j < stride_; ++j) row[j] = 0;
    }
    times(m_, n_, whole(n_), x_, x_ + m_ * stride_, stride_, other_, Into::set);  // X = A J
    __builtin_memcpy(other_ + m_ * stride_, x_ + m_ * stride_,
                     std::size_t(n_ * stride_) * sizeof(T));
    swap();
    return turn_tails(0) && clear_angles(most_rank);
  }

  /// For a triangular factor with short columns last, where each has correct digits.
  bool solve_graded(const Helpers<T>& helpers, int max_sweeps) {
    helpers_ = &helpers;
    graded_ = true;
    load(0);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < stride_; ++j) x_[(m_ + i) * stride_ + j] = T(i == j);
    square_columns();
    return (turn_from(0) && turn_tails(0) && clear_angles(n_)) || rotate(max_sweeps);
  }

  /// Writes X, and J below it, as columns that are `next` apart.
  void columns(T* to, std::int64_t next) const {
    constexpr std::int64_t kTile = 16;
    for (std::int64_t left = 0; left < n_; left += kTile)
      for (std::int64_t i = 0; i < m_ + n_; ++i)
        for (std::int64_t j = left; j < n_ && j < left + kTile; ++j)
          to[j * next + i] = x_[i * stride_ + j];
  }

  /// Stores the values, U and V^T in descending order, with the signs of the contract. Vectors of
  /// zero values that X would give are zero.
  void store(T* values, T* left, std::int64_t left_stride, T* right, std::int64_t right_stride) {
    // U comes from X if the matrix is tall, and from J if it is wide.
    const T *const u = wide_ ? x_ + m_ * stride_ : x_, *const v = wide_ ? x_ : x_ + m_ * stride_;
    const std::int64_t u_rows = wide_ ? n_ : m_, v_rows = wide_ ? m_ : n_;
    square_columns();
    for (std::int64_t j = 0; j < width_; j += kWidth) {
      const V length = square_root<T>(at(square_, j));
      // Of the entries as they are stored: rounding may make the largest equal.
      const V unit = wide_ ? broadcast(T(1)) : length > 0 ? T(1) / length : V{};
      V peak = {}, size = {};
      for (std::int64_t i = 0; i < u_rows; ++i) {
        const V x = at(u + i * stride_, j), own = magnitude<T>(x) * unit;
        const M larger = own > size;
        size = larger ? own : size;
        peak = larger ? x : peak;
      }
      at(size_, j) = length;
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

  /// Turns what is too short for the inner products of the longest columns, from `head` on.
  bool turn_tails(std::int64_t head) {
    for (int tail = 0; tail < (graded_ ? kMostGraded : kMost); ++tail) {
      const std::int64_t begin = tail_after(head);
      if (begin == n_) break;
      if (!clear_tail(head, begin)) return false;
      // Beyond a low rank only noise remains. If rows of A are equal, the noise has low rank too, and
      // rotating it would only reveal the next tail. If it fills at most half of the columns, it is
      // rotated once anyway, which is faster than completing U.
      if (!graded_)
        drop_negligible(begin, 2 * begin < n_ ? kEpsilon<T> * kEpsilon<T> : kNegligible);
      if (!turn_from(begin)) return false;
      head = begin;
    }
    return true;
  }

  /// Takes out the angles between columns that are left. Returns false if some remain.
  bool clear_angles(std::int64_t most_rank) {
    for (int step = 0; step < kMost; ++step) {
      if (!graded_) {
        drop_negligible(0, kNegligible);
        drop_negligible(most_rank, kEpsilon<T> * kEpsilon<T> * T(n_));
      }
      const T angles = measure();
      if (angles == 0) return true;
      if (!(angles <= Reach::kThird)) {
        if (!turn_clusters()) return false;
        continue;
      }
      if (angles <= Reach::kFirst) {
        turn(k_, 1);
        continue;
      }
      times(n_, n_, whole(n_), k_, k_, stride_, k_square_, Into::set);
      if (angles <= Reach::kSecond) {
        for (std::int64_t i = 0; i < n_; ++i)
          for (std::int64_t j = 0; j < width_; j += kWidth)
            at(k_ + i * stride_, j) += T(0.5) * at(k_square_ + i * stride_, j);
        turn(k_, 1);
        continue;
      }
      turn(k_, 1);
      turn(k_square_, T(0.5));
      times(n_, n_, whole(n_), k_square_, k_square_, stride_, k_, Into::set);
      turn(k_, T(1.5));  // 3 / 8 of K^4, since k_square_ is K^2 / 2 by now
    }
    return false;
  }

  /// Where the angles in K are large, columns have almost equal lengths. Rotates these by the
  /// eigenvectors of their own Gram matrix.
  bool turn_clusters() {
    const T large = square_root<T>(broadcast(Reach::kThird))[0] / T(n_);
    auto* const last = reinterpret_cast<typename IntegerOf<T>::type*>(order_);
    for (std::int64_t i = 0; i < n_; ++i) {
      last[i] = typename IntegerOf<T>::type(i);
      for (std::int64_t j = i + 1; j < n_; ++j)
        if (!(magnitude<T>(broadcast(k_[i * stride_ + j]))[0] <= large))
          last[i] = typename IntegerOf<T>::type(j);
    }
    for (std::int64_t begin = 0, end; begin < n_; begin = end) {
      end = begin + 1;
      for (std::int64_t i = begin; i < end; ++i) end = last[i] < end ? end : last[i] + 1;
      if (end - begin > 1 && !turn_between(begin, end, false)) return false;
    }
    return true;
  }

  /// Rotates pairs of columns until all are orthogonal.
  bool rotate(int max_sweeps) {
    const std::int64_t rows = m_ + n_;
    columns(other_, rows);
    const JacobiSweeps<T, Alone<T>> sweeps(m_, rows, other_, square_, size_);
    const bool unfinished = sweeps.run(n_, max_sweeps);
    constexpr std::int64_t kTile = 16;
    for (std::int64_t left = 0; left < n_; left += kTile)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = left; j < n_ && j < left + kTile; ++j)
          x_[i * stride_ + j] = other_[j * rows + i];
    return !unfinished;
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

  /// Calls body(first, end) for ranges that cover `rows`.
  template <typename Body>
  void in_pieces(std::int64_t rows, const Body& body) {
    constexpr std::int64_t kRows = std::int64_t(4) * kTileRows;
    if (n_ < kFewestThreaded) return body(std::int64_t(0), rows);
    helpers_->share((rows + kRows - 1) / kRows, [&](std::int64_t piece) {
      body(piece * kRows, (piece + 1) * kRows < rows ? (piece + 1) * kRows : rows);
    });
  }

  /// C = A B, or C += A B. A and C have rows stride_ apart.
  void times(std::int64_t rows, std::int64_t depth, std::int64_t columns, const T* a, const T* b,
             std::int64_t b_stride, T* c, Into into) {
    pack<T>(depth, columns, b, b_stride, nullptr, packed_);
    in_pieces(rows, [&](std::int64_t first, std::int64_t end) {
      multiply_packed<T>(end - first, columns, depth, a + first * stride_, stride_, packed_,
                         c + first * stride_, stride_, into);
    });
  }

  /// C = the inner products of `rows` columns of X from `left` on with `columns` ones from `right` on.
  /// If both are the same, only on and below the diagonal.
  void inner(std::int64_t left, std::int64_t rows, std::int64_t right, std::int64_t columns, T* c) {
    // Long sums are added up from shorter ones, so that rounding errors grow with their root.
    for (std::int64_t at = 0; at < m_; at += run_) {
      const std::int64_t depth = m_ - at < run_ ? m_ - at : run_;
      pack<T>(depth, columns, x_ + at * stride_ + right, stride_, nullptr, packed_);
      in_pieces(rows, [&](std::int64_t first, std::int64_t end) {
        multiply_packed<T, true>(end - first, left == right ? end : columns, depth,
                                 x_ + at * stride_ + left + first, stride_, packed_,
                                 c + first * stride_, stride_, at == 0 ? Into::set : Into::add);
      });
    }
  }

  /// K = the inner products of `count` columns of X from `begin` on.
  void multiply_columns(std::int64_t begin, std::int64_t count) {
    inner(begin, count, begin, count, k_);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = i + 1; j < count; ++j) k_[i * stride_ + j] = k_[j * stride_ + i];
      for (std::int64_t j = count; j < stride_; ++j) k_[i * stride_ + j] = 0;
    }
  }

  /// X and J += factor X K, factor J K
  void turn(T* by, T factor) {
    if (factor != 1)
      for (std::int64_t i = 0; i < n_ * stride_; ++i) by[i] *= factor;
    __builtin_memcpy(other_, x_, std::size_t((m_ + n_) * stride_) * sizeof(T));
    times(m_ + n_, n_, whole(n_), x_, by, stride_, other_, Into::add);
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
    T *const c = k_, *const back = k_square_;  // C, and -C^T / 2
    const std::int64_t heads = begin - head, tails = n_ - begin;
    inner(head, heads, begin, tails, c);
    T angles = 0;
    for (std::int64_t i = 0; i < heads; ++i)
      for (std::int64_t j = 0; j < tails; ++j) {
        T& entry = c[i * stride_ + j];
        entry /= square_[begin + j] - square_[head + i];
        back[j * stride_ + i] = entry / -2;
        angles += entry * entry;
      }
    if (!(angles <= Reach::kShear)) return false;
    const std::int64_t rows = m_ + n_;
    for (int step = 0; step < 3; ++step)
      if (step == 1)
        times(rows, heads, tails, x_ + head, c, stride_, x_ + begin, Into::add);
      else
        times(rows, tails, heads, x_ + begin, back, stride_, x_ + head, Into::add);
    return true;
  }

  /// Rotates the columns of X from `begin` on, and J with them, by the eigenvectors of their Gram
  /// matrix. Afterwards their directions are accurate relative to the longest of them. Of a graded
  /// matrix columns stay as they are if they are so short that rounding errors would reach them.
  bool turn_from(std::int64_t begin) {
    T largest = 0;
    for (std::int64_t j = begin; j < n_; ++j) largest = square_[j] > largest ? square_[j] : largest;
    if (largest == 0) return true;
    std::int64_t end = n_;
    while (graded_ && !(square_[end - 1] >= Reach::kWindow * largest)) --end;
    return turn_between(begin, end, graded_ && begin == 0);
  }
  /// `fresh`: J is still I.
  bool turn_between(std::int64_t begin, std::int64_t end, bool fresh) {
    const std::int64_t count = end - begin;
    multiply_columns(begin, count);
    for (std::int64_t i = 0; i < count * stride_; ++i) k_square_[i] = 0;
    if (!helpers_->eigh(count, k_, k_square_, stride_)) return false;
    times(fresh ? m_ : m_ + n_, count, count, x_ + begin, k_square_, stride_, other_, Into::set);
    for (std::int64_t i = 0; i < m_ + n_; ++i) {
      const T* const row = fresh && i >= m_ ? k_square_ + (i - m_) * stride_ : other_ + i * stride_;
      if (fresh && i - m_ >= count) break;
      __builtin_memcpy(x_ + i * stride_ + begin, row, std::size_t(count) * sizeof(T));
    }
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

  /// Computes K and returns the sum of its squares: zero if the columns are orthogonal.
  T measure() {
    multiply_columns(0, n_);
    for (std::int64_t j = 0; j < n_; ++j) {
      square_[j] = k_[j * stride_ + j];
      k_[j * stride_ + j] = 0;
    }
    for (std::int64_t j = n_; j < width_; ++j) square_[j] = 1;  // padding: never small or rotated
    for (std::int64_t j = 0; j < width_; j += kWidth) at(size_, j) = square_root<T>(at(square_, j));
    const T tolerance = kEpsilon<T> * square_root<T>(broadcast(T(n_)))[0];
    V sum = {};
    M turns = {};
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
      }
    }
    return any<T>(turns) ? sum_lanes<T>(sum) : T(0);
  }

  /// Squared lengths below this share of the largest are negligible.
  static constexpr T kNegligible = kEpsilon<T> * kEpsilon<T> * kEpsilon<T>;
  static constexpr int kMostGraded = 32;
  static constexpr std::int64_t kFewestThreaded = 192;  // of eigh, too

  static std::int64_t whole(std::int64_t columns) {
    return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  }
  /// At least `count`, an odd number of cache lines: at a multiple of 4096 bytes the entries of a column
  /// would evict each other from the cache.
  static std::int64_t row_gap(std::int64_t count) {
    constexpr std::int64_t kLine = 64 / std::int64_t(sizeof(T));
    return ((count + kLine - 1) / kLine | 1) * kLine;
  }
  static std::int64_t stride_of(std::int64_t n) {
    return n * std::int64_t(sizeof(T)) < 512 ? padded<T>(n) : row_gap(n);
  }
  static std::int64_t pack_size(std::int64_t m, std::int64_t n) {
    const std::int64_t run = summed_at_once(m, 1), most = run < m ? run : m;
    return packed_size<T>(most > n ? most : n, n);
  }
  const Helpers<T>* helpers_ = nullptr;

  bool wide_ = false, graded_ = false;
  std::int64_t m_, n_, down_, along_;
  const T* source_;
  std::int64_t stride_, width_;  ///< distance of rows, and the part of a row that is used
  std::int64_t run_;             ///< rows of a column that are summed at once
  int exponent_ = 0;
  T *x_, *other_;  ///< X stacked on J, m + n rows, and a second buffer of that size
  T *k_, *k_square_, *packed_, *square_, *size_, *peak_, *sign_, *order_, *row_size_;
};

template <typename T>
std::int64_t svd_polish_scratch(std::int64_t m, std::int64_t n) {
  return PolishSvd<T>::scratch_size(m < n ? n : m, m < n ? m : n);
}

template <typename T>
bool svd_square(std::int64_t index, Rectangles<const T> matrices, int& exponent, T* square,
                const Helpers<T>& helpers, T* scratch) {
  return PolishSvd<T>(matrices, index, scratch).square_up(exponent, square, helpers);
}

template <typename T>
bool svd_polish(std::int64_t index, Rectangles<const T> matrices, int exponent, const T* vectors,
                const Helpers<T>& helpers, T* values, Rectangles<T> left, Rectangles<T> right,
                T* scratch) {
  PolishSvd<T> solver(matrices, index, scratch);
  if (!solver.solve(exponent, vectors, helpers)) return false;
  const std::int64_t k = matrices.rows < matrices.columns ? matrices.rows : matrices.columns;
  solver.store(values + index * k, left[index], left.row_stride, right[index], right.row_stride);
  return true;
}

}  // namespace keel::cpu::KEEL_ISA
