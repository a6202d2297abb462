#pragma once

// Singular values by QR. A = Q R, and the columns of R^T are rotated until they are orthogonal:
// R^T J = V S, so A = (Q J) S V^T. The same code solves one matrix per SIMD lane (Lanes) or one matrix
// over all lanes (Alone). Columns are rotated in pairs, by one-sided Jacobi, for which R^T needs half
// the sweeps that A does. If a single matrix is not small, each step of QR takes the column with the
// largest remainder, QR stops when only noise remains, and the columns are rotated as in svd_polish.h.

#include "eigh_scaling.h"
#include "formulas/polish_reach.h"
#include "keel/svd.h"
#include "scratch_gap.h"
#include "svd_order.h"
#include "svd_polish.h"
#include "svd_sweeps.h"
#include "svd_ways.h"

namespace keel::cpu::KEEL_ISA {

/// Solves m x n matrices, m >= n, stored by columns.
template <typename T, typename Way>
class JacobiSvd {
  using Number = typename Way::Number;
  using Truth = typename Way::Truth;
  using Index = typename IntegerOf<T>::type;  // of the size of T

 public:
  /// The size of `scratch`, in elements of T.
  static std::int64_t scratch_size(std::int64_t m, std::int64_t n) {
    return (pivots(n)
                ? with_gap<T>(PolishSvd<T>::scratch_size(n, n)) + with_gap<T>(block_size(m, n))
                : 0) +
           Way::kMatrices * (2 * with_gap<T>(m * n) + with_gap<T>(2 * n * n) + 6 * with_gap<T>(n));
  }

  JacobiSvd(std::int64_t m, std::int64_t n, T* scratch)
      : m_(m),
        n_(n),
        rank_(n),
        pivots_(pivots(n)),
        polish_(pivots_ ? take(scratch, PolishSvd<T>::scratch_size(n, n)) : nullptr),
        blocks_(pivots_ ? take(scratch, block_size(m, n)) : nullptr),
        columns_(take_numbers(scratch, m * n)),
        left_(take_numbers(scratch, m * n)),
        turned_(take_numbers(scratch, 2 * n * n)),
        square_(take_numbers(scratch, n)),
        size_(take_numbers(scratch, n)),
        tau_(take_numbers(scratch, n)),
        noise_(take_numbers(scratch, n)),
        known_(take_numbers(scratch, n)),
        place_(reinterpret_cast<Index*>(take_numbers(scratch, n))) {}

  /// An entry of a matrix, to be set before solve().
  T& entry(int matrix, std::int64_t i, std::int64_t j) {
    return reinterpret_cast<T*>(columns_ + j * m_ + i)[matrix];
  }
  /// Column k is rounding noise if its norm is below this when QR reaches it.
  T& noise(int matrix, std::int64_t k) { return reinterpret_cast<T*>(noise_ + k)[matrix]; }
  T left(int matrix, std::int64_t i, std::int64_t j) const {  ///< U
    return reinterpret_cast<const T*>(left_ + j * m_ + i)[matrix];
  }
  T right(int matrix, std::int64_t i, std::int64_t j) const {  ///< V
    return reinterpret_cast<const T*>(turned_ + j * 2 * n_ + i)[matrix];
  }
  T value(int matrix, std::int64_t j) const {
    return reinterpret_cast<const T*>(size_ + j)[matrix];
  }

  /// Inspects the entries. Must be called before scale().
  struct Look {
    Number largest;
    Truth not_finite,
        steep;  // steep as in core/formulas/polish_reach.h: QR must take large numbers first
  };
  Look look() {
    Number bad = {}, largest = {};
    Number* const rows = left_;
    for (std::int64_t i = 0; i < m_; ++i) rows[i] = Number{};
    for (std::int64_t j = 0; j < n_; ++j) {
      const Number* const column = columns_ + j * m_;
      size_[j] = Way::largest(m_, column, bad);
      largest = size_[j] > largest ? size_[j] : largest;
      for (std::int64_t i = 0; i < m_; ++i) {
        const Number entry = Way::size(column[i]);
        rows[i] = entry > rows[i] ? entry : rows[i];
      }
    }
    const Number limit = largest / T(kSteepFrom), one = Way::number(T(1));
    Truth steep = {};
    for (std::int64_t j = 0; j < n_; ++j) steep |= size_[j] < limit;
    Number large_rows = {};
    for (std::int64_t i = 0; i < m_; ++i)
      large_rows = rows[i] >= limit ? large_rows + one : large_rows;
    steep |= large_rows < T(n_);
    return {largest, bad != 0, steep};
  }

  /// The largest entries of row i and of column j, as look() found them.
  T row_size(int matrix, std::int64_t i) const {
    return reinterpret_cast<const T*>(left_ + i)[matrix];
  }
  T column_size(int matrix, std::int64_t j) const { return value(matrix, j); }

  /// Multiplies the entries by both factors. The columns must be in the same order as in look().
  void scale(Number first, Number second) {
    for (std::int64_t i = 0; i < m_ * n_; ++i) columns_[i] = columns_[i] * first * second;
    for (std::int64_t j = 0; j < n_; ++j) noise_[j] = 4 * kEpsilon<T> * (size_[j] * first * second);
  }

  /// Returns which matrices did not converge within max_sweeps.
  Truth solve(int max_sweeps, const Helpers<T>& helpers) {
    if constexpr (Way::kMayPivot)
      if (pivots_) factor_by_pivots();
    for (std::int64_t k = 0; k < n_ && !pivots_; ++k) reflect(k);
    // Column j of R^T, and of I below it.
    for (std::int64_t j = 0; j < n_; ++j) {
      Number* const column = turned_ + j * 2 * n_;
      for (std::int64_t i = 0; i < n_; ++i) column[n_ + i] = Way::number(T(i == j));
    }
    constexpr std::int64_t kTile = 16;  // rows whose lines stay in cache while they become columns
    for (std::int64_t left = 0; left < n_; left += kTile)
      for (std::int64_t i = 0; i < n_; ++i)
        for (std::int64_t j = left; j < n_ && j < left + kTile; ++j)
          turned_[j * 2 * n_ + (pivots_ ? place_[i] : i)] =
              i < j || j >= rank_ ? Number{} : columns_[i * m_ + j];
    const JacobiSweeps<T, Way> sweeps(n_, 2 * n_, turned_, square_, size_);
    Truth turned = {};
    if constexpr (Way::kMayPivot)
      if (pivots_) turned = !polish(helpers, max_sweeps);
    if (!pivots_) turned = sweeps.run(rank_, max_sweeps);
    for (std::int64_t j = 0; j < n_; ++j) sweeps.measure(j);
    if constexpr (Way::kMayPivot)
      if (pivots_) form_left_by_blocks();
    if (!pivots_) form_left();
    for (std::int64_t j = 0; j < n_; ++j) {
      Number* const column = turned_ + j * 2 * n_;
      const Number scale = size_[j] > 0 ? T(1) / size_[j] : Number{};
      for (std::int64_t i = 0; i < n_; ++i) column[i] *= scale;
    }
    return turned;
  }

  /// Makes the first of the largest entries of each column of U positive, or of V if `of_right`.
  void fix_signs(bool of_right) {
    for (std::int64_t j = 0; j < n_; ++j) {
      Number *const u = left_ + j * m_, *const v = turned_ + j * 2 * n_;
      const Number peak = of_right ? Way::peak(n_, v) : Way::peak(m_, u);
      const Number sign = peak < 0 ? Way::number(T(-1)) : Way::number(T(1));
      for (std::int64_t i = 0; i < m_; ++i) u[i] = sign * u[i] + T(0);
      for (std::int64_t i = 0; i < n_; ++i) v[i] = sign * v[i] + T(0);
    }
  }

 private:
  static constexpr std::int64_t kBlock = 32;  ///< reflectors
  static std::int64_t block_size(std::int64_t m, std::int64_t n) {
    return kBlock * (4 * m + n + 2 * kBlock + kTileColumns<T>);
  }
  static bool pivots(std::int64_t n) { return Way::kMayPivot && n >= kFewestPivoted; }

  /// Smaller matrices are solved like those in lanes: where the result is ambiguous, it does not
  /// depend on the size of the batch.
  static constexpr std::int64_t kFewestPivoted = 12;
  static constexpr T kEpsilonRoot = sizeof(T) == 4 ? T(0x1p-11) : T(0x1p-26);

  static Number* take_numbers(T*& next, std::int64_t count) {
    return reinterpret_cast<Number*>(take(next, count * Way::kMatrices));
  }

  /// Step k of QR: R on and above the diagonal, and below it the reflectors without their leading 1.
  void reflect(std::int64_t k) {
    Number* const own = columns_ + k * m_;
    const std::int64_t below = m_ - k - 1;
    const Number alpha = own[k], square = Way::dot(below, own + k + 1, own + k + 1);
    const Number one = Way::number(T(1));
    Number norm = Way::root(alpha * alpha + square);
    const Truth is_noise = norm <= noise_[k];
    const Truth reflect = (square > kTinySquare<T>)&(norm > noise_[k]);
    norm = alpha < 0 ? norm : -norm;
    const Number tau = reflect ? (norm - alpha) / norm : Number{};
    const Number scale = reflect ? one / (alpha - norm) : Number{};
    tau_[k] = tau;
    own[k] = is_noise ? Number{} : reflect ? norm : alpha;
    for (std::int64_t i = k + 1; i < m_; ++i) own[i] *= scale;
    for (std::int64_t j = k + 1; j < n_; ++j) {
      Number* const other = columns_ + j * m_;
      const Number part = tau * (other[k] + Way::dot(below, own + k + 1, other + k + 1));
      other[k] -= part;
      Way::add(below, -part, own + k + 1, other + k + 1);
    }
  }

  /// QR of one matrix with pivots. Without them, Jacobi would take many sweeps on the noise of a
  /// matrix of low rank, or not converge. Sets rank_ and place_.
  void factor_by_pivots() {
    // Rounding errors are relative to the sizes of row and column, and at least to the entry itself.
    // row_tail[k] is the norm of the sizes of rows k and on, tail[k] that of a column's entries there.
    T *const row_tail = noise_, *const tails = left_, *const left_over = square_;
    for (std::int64_t i = 0; i < m_; ++i) tails[i] = 0;
    for (std::int64_t j = 0; j < n_; ++j) {
      const T* const column = columns_ + j * m_;
      T unused = 0;
      size_[j] = Way::largest(m_, column, unused);
      place_[j] = Index(j);
      for (std::int64_t i = 0; i < m_; ++i) {
        const T own = Way::size(column[i]);
        tails[i] = own > tails[i] ? own : tails[i];
      }
    }
    const auto lengths = [&](const T* numbers, T* of_rest) {
      T sum = Way::dot(m_ - n_, numbers + n_, numbers + n_);
      for (std::int64_t i = n_ - 1; i >= 0; --i) {
        sum += numbers[i] * numbers[i];
        of_rest[i] = Way::root(sum);
      }
      return sum;
    };
    lengths(tails, row_tail);
    for (std::int64_t j = 0; j < n_; ++j)
      left_over[j] = known_[j] = lengths(columns_ + j * m_, tails + j * m_);
    for (std::int64_t k = 0; k < n_; ++k) {
      std::int64_t longest = k;
      for (std::int64_t j = k; j < n_; ++j) {
        if (k > 0) left_over[j] -= columns_[j * m_ + k - 1] * columns_[j * m_ + k - 1];
        T* const rest = columns_ + j * m_ + k;
        if (!(left_over[j] > known_[j] * kEpsilonRoot))  // cancellation
          left_over[j] = known_[j] = Way::dot(m_ - k, rest, rest);
        const T* const tail = tails + place_[j] * m_;
        T size = size_[j] * row_tail[k];
        size = size < tail[0] ? size : tail[0];
        size = size > tail[k] ? size : tail[k];
        const T noise = 4 * kEpsilon<T> * size;
        if (left_over[j] <= noise * noise) {
          for (std::int64_t i = 0; i < m_ - k; ++i) rest[i] = 0;
          left_over[j] = known_[j] = 0;
        }
        longest = left_over[j] > left_over[longest] ? j : longest;
      }
      if (!(left_over[longest] > 0)) {
        rank_ = k;
        return;
      }
      const auto swap = [&](auto* list) {
        const auto kept = list[k];
        list[k] = list[longest];
        list[longest] = kept;
      };
      for (T* const list : {left_over, size_, known_}) swap(list);
      swap(place_);
      for (std::int64_t i = 0; i < m_ && longest != k; ++i) {
        const T kept = columns_[k * m_ + i];
        columns_[k * m_ + i] = columns_[longest * m_ + i];
        columns_[longest * m_ + i] = kept;
      }
      noise_[k] = 0;
      reflect(k);
    }
  }

  /// Rotates the columns of R^T by the eigenvectors of R R^T, and then by what is missing.
  bool polish(const Helpers<T>& helpers, int max_sweeps) {
    if (rank_ == 0) return true;
    PolishSvd<T> solver(n_, rank_, turned_, 1, 2 * n_, polish_);
    if (!solver.solve_graded(helpers, max_sweeps)) return false;
    solver.columns(turned_, 2 * n_);
    return true;
  }

  /// U = Q J.
  void form_left() {
    for (std::int64_t j = 0; j < n_; ++j) {
      Number* const u = left_ + j * m_;
      const Number* const turn = turned_ + j * 2 * n_ + n_;
      for (std::int64_t i = 0; i < m_; ++i) u[i] = i < n_ ? turn[i] : Number{};
      for (std::int64_t k = rank_ - 1; k >= 0; --k) {
        const Number* const reflector = columns_ + k * m_ + k + 1;
        const std::int64_t below = m_ - k - 1;
        const Number part = tau_[k] * (u[k] + Way::dot(below, reflector, u + k + 1));
        u[k] -= part;
        Way::add(below, -part, reflector, u + k + 1);
      }
    }
  }

  /// The same by blocks of reflectors, I - V T V^T, as products.
  void form_left_by_blocks() {
    for (std::int64_t j = 0; j < n_; ++j) {
      const T* const turn = turned_ + j * 2 * n_ + n_;
      for (std::int64_t i = 0; i < m_; ++i) left_[j * m_ + i] = i < n_ ? turn[i] : T(0);
    }
    for (std::int64_t first = (rank_ - 1) / kBlock * kBlock; first >= 0; first -= kBlock) {
      const std::int64_t count = rank_ - first < kBlock ? rank_ - first : kBlock,
                         length = m_ - first;
      T *const rows = blocks_, *const columns = rows + kBlock * m_,
               *const product = columns + kBlock * m_, *const part = product + kBlock * m_,
               *const overlap = part + kBlock * n_, *const factor = overlap + kBlock * kBlock,
               *const packed = factor + kBlock * kBlock;
      for (std::int64_t k = 0; k < count; ++k) {
        const T* const reflector = columns_ + (first + k) * m_ + first;
        for (std::int64_t i = 0; i < length; ++i) {
          rows[k * length + i] = i < k ? T(0) : i == k ? T(1) : reflector[i];
          columns[i * count + k] = rows[k * length + i];
        }
      }
      const std::int64_t run = summed_at_once(length, 1);  // as in Alone::dot
      for (std::int64_t at = 0; at < length; at += run) {
        const std::int64_t depth = length - at < run ? length - at : run;
        const Into into = at == 0 ? Into::set : Into::add;
        pack<T>(depth, count, columns + at * count, count, nullptr, packed);
        multiply_packed<T>(count, count, depth, rows + at, length, packed, overlap, count, into);
        multiply_packed<T>(n_, count, depth, left_ + first + at, m_, packed, part, count, into);
      }
      // Row k of T^T is tau_k (-(row k of V^T V) T^T, 1).
      for (std::int64_t k = 0; k < count; ++k) {
        T* const own = factor + k * count;
        for (std::int64_t j = 0; j < count; ++j) own[j] = 0;
        for (std::int64_t i = 0; i < k; ++i)
          for (std::int64_t j = 0; j <= i; ++j)
            own[j] -= overlap[k * count + i] * factor[i * count + j];
        for (std::int64_t j = 0; j < k; ++j) own[j] *= tau_[first + k];
        own[k] = tau_[first + k];
      }
      pack<T>(count, length, rows, length, nullptr, packed);
      multiply_packed<T>(count, length, count, factor, count, packed, product, length, Into::set);
      pack<T>(count, length, product, length, nullptr, packed);
      multiply_packed<T>(n_, length, count, part, count, packed, left_ + first, m_, Into::subtract);
    }
  }

  std::int64_t m_, n_, rank_;  ///< columns of R^T from rank_ on are zero
  bool pivots_;
  T *polish_, *blocks_;
  Number *columns_, *left_, *turned_, *square_, *size_, *tau_, *noise_;
  Number* known_;  ///< squared lengths of columns, as last computed without subtraction
  Index* place_;   ///< the original index of the column that QR took in step k
};

/// The scratch memory of solve_svd, in elements of T.
template <typename T, typename Way>
std::int64_t svd_scratch(std::int64_t m, std::int64_t n) {
  if (m < n) return svd_scratch<T, Way>(n, m);
  return JacobiSvd<T, Way>::scratch_size(m, n) + m + n + Way::kMatrices * (m + 2 * n);
}

/// Solves `count` <= Way::kMatrices matrices of the batch. A matrix that is too steep for the type
/// or does not converge gets the status by_fallback, and nothing is written for it.
template <typename T, typename Way>
void solve_svd(const std::int64_t* which, std::int64_t count, Rectangles<const T> matrices,
               T* values, Rectangles<T> left, Rectangles<T> right, SvdStatus* status,
               int max_sweeps, const Helpers<T>& helpers, T* scratch) {
  const bool wide = matrices.rows < matrices.columns;  // then of the transpose
  const std::int64_t m = wide ? matrices.columns : matrices.rows,
                     n = wide ? matrices.rows : matrices.columns,
                     down = wide ? 1 : matrices.row_stride, along = wide ? matrices.row_stride : 1;
  using Solver = JacobiSvd<T, Way>;
  Solver solver(m, n, scratch);
  T* const sizes = scratch + Solver::scratch_size(m, n);
  // Indices are integers of the size of T.
  using Index = typename IntegerOf<T>::type;
  Index* const places = reinterpret_cast<Index*>(sizes + m + n);
  const auto rows_of = [&](int lane) { return places + lane * (m + n); };
  // A few rows of all matrices at a time, since numbers of different matrices share cache lines.
  constexpr std::int64_t kRowsAtOnce = 16;
  const auto by_rows = [&](int lanes, const auto& body) {
    for (std::int64_t begin = 0; begin < m; begin += kRowsAtOnce) {
      const std::int64_t end = begin + kRowsAtOnce < m ? begin + kRowsAtOnce : m;
      for (int lane = 0; lane < lanes; ++lane) body(lane, begin, end);
    }
  };

  by_rows(Way::kMatrices, [&](int lane, std::int64_t begin, std::int64_t end) {
    const T* const matrix = matrices[which[lane < count ? lane : 0]];
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        solver.entry(lane, i, j) = lane < count ? matrix[i * down + j * along] : T(0);
  });
  const typename Solver::Look look = solver.look();
  int exponent[Way::kMatrices] = {};
  bool ordered[Way::kMatrices] = {};
  typename Way::Number first = Way::number(T(1)), second = first;
  for (int lane = 0; lane < count; ++lane) {
    const bool bad = Way::of(look.not_finite, lane);
    status[which[lane]] = bad ? SvdStatus::not_finite : SvdStatus::converged;
    if (bad) continue;
    __builtin_frexp(double(reinterpret_cast<const T*>(&look.largest)[lane]), &exponent[lane]);
    const PowerOfTwo<T> unit(-exponent[lane]);
    reinterpret_cast<T*>(&first)[lane] = unit.first;
    reinterpret_cast<T*>(&second)[lane] = unit.second;
  }
  solver.scale(first, second);
  for (int lane = 0; lane < count; ++lane) {
    SvdStatus& own = status[which[lane]];
    ordered[lane] = own == SvdStatus::converged && Way::of(look.steep, lane);
    if (own == SvdStatus::converged && !ordered[lane]) continue;
    const T* const matrix = matrices[which[lane]];
    Index *const row_at = rows_of(lane), *const column_at = row_at + m;
    for (std::int64_t i = 0; i < m; ++i) sizes[i] = solver.row_size(lane, i);
    for (std::int64_t j = 0; j < n; ++j) sizes[m + j] = solver.column_size(lane, j);
    if (ordered[lane]) own = arrange(m, n, sizes, row_at, column_at);
    const bool use = own == SvdStatus::converged;
    const PowerOfTwo<T> unit(use ? -exponent[lane] : 0);
    for (std::int64_t j = 0; j < n; ++j)
      solver.noise(lane, j) =
          use ? 4 * kEpsilon<T> * (unit * sizes[row_at[j]]) * (unit * sizes[m + column_at[j]])
              : T(0);
    for (std::int64_t top = 0; top < m; top += kRowsAtOnce)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = top; i < m && i < top + kRowsAtOnce; ++i)
          solver.entry(lane, i, j) =
              use ? unit * matrix[row_at[i] * down + column_at[j] * along] : T(0);
  }

  const auto unconverged = solver.solve(max_sweeps, helpers);
  solver.fix_signs(wide);
  Index* const orders = places + Way::kMatrices * (m + n);
  for (int lane = 0; lane < count; ++lane) {
    const std::int64_t index = which[lane];
    if (status[index] == SvdStatus::converged && Way::of(unconverged, lane))
      status[index] = SvdStatus::by_fallback;
    if (status[index] != SvdStatus::converged) continue;
    Index* const order = orders + lane * n;
    for (std::int64_t j = 0; j < n; ++j) {  // descending; equal values keep their order
      std::int64_t place = j;
      for (; place > 0 && solver.value(lane, order[place - 1]) < solver.value(lane, j); --place)
        order[place] = order[place - 1];
      order[place] = Index(j);
    }
    const PowerOfTwo<T> unit(exponent[lane]);
    T* const v = wide ? left[index] : right[index];
    const std::int64_t v_down = wide ? left.row_stride : 1, v_next = wide ? 1 : right.row_stride;
    const Index* const column_at = rows_of(lane) + m;
    for (std::int64_t k = 0; k < n; ++k)
      values[index * n + k] = unit * solver.value(lane, order[k]);
    for (std::int64_t top = 0; top < n; top += kRowsAtOnce)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t i = top; i < n && i < top + kRowsAtOnce; ++i)
          v[(ordered[lane] ? column_at[i] : i) * v_down + k * v_next] =
              solver.right(lane, i, order[k]);
  }
  by_rows(int(count), [&](int lane, std::int64_t begin, std::int64_t end) {
    const std::int64_t index = which[lane];
    if (status[index] != SvdStatus::converged) return;
    T* const u = wide ? right[index] : left[index];
    const std::int64_t u_down = wide ? 1 : left.row_stride, u_next = wide ? right.row_stride : 1;
    const Index *const order = orders + lane * n, *const row_at = rows_of(lane);
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t k = 0; k < n; ++k)
        u[(ordered[lane] ? row_at[i] : i) * u_down + k * u_next] = solver.left(lane, i, order[k]);
  });
  // In QR's order, a different one of several equal entries may have come first.
  for (int lane = 0; lane < count; ++lane) {
    const std::int64_t index = which[lane];
    if (!ordered[lane] || status[index] != SvdStatus::converged) continue;
    T* const peaks = sizes;
    for (std::int64_t k = 0; k < n; ++k) peaks[k] = 0;
    for (std::int64_t i = 0; i < left.rows; ++i) {
      const T* const u = left[index] + i * left.row_stride;
      for (std::int64_t k = 0; k < n; ++k)
        peaks[k] = Alone<T>::size(u[k]) > Alone<T>::size(peaks[k]) ? u[k] : peaks[k];
    }
    for (std::int64_t k = 0; k < n; ++k) {
      T *const u = left[index] + k, *const v = right[index] + k * right.row_stride;
      if (peaks[k] >= 0) continue;
      for (std::int64_t i = 0; i < left.rows; ++i)
        u[i * left.row_stride] = -u[i * left.row_stride] + T(0);
      for (std::int64_t i = 0; i < right.columns; ++i) v[i] = -v[i] + T(0);
    }
  }
}

}  // namespace keel::cpu::KEEL_ISA
