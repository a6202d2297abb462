#pragma once

// The eigenvalues of a tridiagonal matrix, without vectors: QL without square roots, by Pal, Walker
// and Kahan. It works with the squares of the off-diagonal entries.
//
// A rotation waits for a division of the one before it, so a sweep leaves the vector units idle.
// Therefore several sweeps run at once, one per lane. Each is two rows behind the one in the next
// lower lane, and takes what that one has just left. Their shifts are the eigenvalues of the leading
// corner, of as many rows as there are sweeps.

#include <limits>
#include <utility>

#include "simd.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
class TridiagonalValues {
  using V = Vec<T>;
  using M = Mask<T>;
  static constexpr T kEps = std::numeric_limits<T>::epsilon(),
                     kLeast = std::numeric_limits<T>::min();
  static constexpr std::int64_t kSweeps = kLanes<T> < 8 ? kLanes<T> : 8;  // 16 are no faster
  static constexpr T kRough = T(1e-4);  // how exact shifts are: with 1e-2 it takes more sweeps

 public:
  /// The matrix is at unit size. The values replace the diagonal, unsorted; the squares of the
  /// off-diagonal entries are used up.
  TridiagonalValues(std::int64_t n, T* diagonal, T* squares, int max_sweeps)
      : n_(n), d_(diagonal), square_(squares), max_sweeps_(max_sweeps) {}

  /// Returns false if it gave up.
  bool run() {
    int tries = 0;
    for (std::int64_t low = 0; low + 1 < n_;) {
      if (!coupled(d_, square_, low, kEps)) {
        ++low;
        tries = 0;
        continue;
      }
      if (tries++ == max_sweeps_) return false;
      std::int64_t high = low + 1;
      while (high + 1 < n_ && coupled(d_, square_, high, kEps)) ++high;
      const std::int64_t rows = high - low + 1;
      if (kSweeps < 4 || rows <= 2 * kSweeps) {
        if (!one_by_one(d_ + low, square_ + low, rows, kEps)) return false;
        low = high;
        continue;
      }
      // Where values repeat, sweeps with the same shift undo what the first of them has reached.
      if (tries > 2) {
        sweep_once(d_, square_, low, high);
        continue;
      }
      T shift[kSweeps], rest[kSweeps];
      for (int k = 0; k < kSweeps; ++k) {
        shift[k] = d_[low + k];
        rest[k] = square_[low + k];
      }
      one_by_one(shift, rest, kSweeps, kRough);
      sort_towards(d_[low], shift);
      all_at_once(low, high, shift);
    }
    return true;
  }

 private:
  static bool coupled(const T* d, const T* square, std::int64_t i, T relative) {
    const T noise = relative * (size(d[i]) + size(d[i + 1]));
    const T squared = noise * noise, least = kLeast / (kEps * kEps);
    return square[i] > (squared > least ? squared : least);
  }
  static T size(T x) { return x < 0 ? -x : x; }
  static T root(T x) {
    return sizeof(T) == 4 ? T(__builtin_sqrtf(float(x))) : T(__builtin_sqrt(x));
  }

  /// A sweep over rows low .. high, with Wilkinson's shift.
  static void sweep_once(T* d, T* square, std::int64_t low, std::int64_t high) {
    const T half = root(square[low]), ratio = (d[low + 1] - d[low]) / (2 * half);
    const T length = root(ratio * ratio + 1);
    const T shift = d[low] - half / (ratio + (ratio < 0 ? -length : length));
    T c = 1, s = 0, g = d[high] - shift, p = g * g;  // c and s: squares of cosine and sine
    for (std::int64_t i = high - 1; i >= low; --i) {
      const T b = square[i], r = p + b, last_c = c, last_g = g;
      // g^2 / c is the next p. This division need not wait for g.
      const bool safe = p > kLeast / kEps;
      const T inverse_c = safe ? r / p : T(0);
      square[i + 1] = s * r;  // zero at first: nothing below `high` is coupled to it
      c = p / r;
      s = b / r;
      g = c * (d[i] - shift) - s * last_g;
      d[i + 1] = last_g + (d[i] - g);
      p = safe ? g * g * inverse_c : c != 0 ? g * g / c : last_c * b;
    }
    square[low] = s * p;
    d[low] = shift + g;
  }

  bool one_by_one(T* d, T* square, std::int64_t n, T relative) const {
    for (std::int64_t low = 0; low + 1 < n; ++low)
      for (int sweep = 0; coupled(d, square, low, relative); ++sweep) {
        if (sweep == max_sweeps_) return false;
        std::int64_t high = low + 1;
        while (high + 1 < n && coupled(d, square, high, relative)) ++high;
        sweep_once(d, square, low, high);
      }
    return true;
  }

  /// The shift nearest to x comes last.
  static void sort_towards(T x, T* shift) {
    for (int k = 1; k < kSweeps; ++k) {
      const T own = shift[k];
      int at = k;
      for (; at > 0 && size(shift[at - 1] - x) < size(own - x); --at) shift[at] = shift[at - 1];
      shift[at] = own;
    }
  }

  /// {first, x[0], x[1], ...}
  template <int... LANE>
  static V pushed(V x, T first, std::integer_sequence<int, LANE...>) {
    return __builtin_shufflevector(x, broadcast(first), (LANE == 0 ? kLanes<T> : LANE - 1)...);
  }

  /// The step of sweep_once, with another row in each lane. A row of zeros before the first and
  /// after the last row of the block begins and ends a sweep: there r = p, so c = 1 and s = 0.
  void all_at_once(std::int64_t low, std::int64_t high, const T* shifts) {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes<T>>();
    const V one = broadcast(T(1));
    V shift, c = one, s = {}, g = {}, p = one, d_done = {}, b_done = {};
    for (int k = 0; k < kLanes<T>; ++k) shift[k] = shifts[k < kSweeps ? k : 0];
    constexpr std::int64_t kBehind = 2 * (kSweeps - 1);  // from the first sweep to the last
    for (std::int64_t row = high; row + kBehind + 1 >= low; --row) {
      const V d = pushed(d_done, row >= low ? d_[row] : T(0), kAll);
      const V b = pushed(b_done, row >= low && row < high ? square_[row] : T(0), kAll);
      const V r = p + b, last_c = c, last_g = g;
      const M safe = p > kLeast / kEps, none = r == 0;
      const V inverse_c = r / (safe ? p : one);
      b_done = s * r;
      c = none ? one : p / r;
      s = none ? b : b / r;
      g = c * (d - shift) - s * last_g;
      d_done = last_g + (d - g);
      const V square = g * g;
      if (any<T>(~safe))
        p = safe ? square * inverse_c : c != 0 ? square / c : last_c * b;
      else
        p = square * inverse_c;
      const std::int64_t done = row + kBehind + 1;
      if (done < low || done > high) continue;
      d_[done] = d_done[kSweeps - 1];
      square_[done] = b_done[kSweeps - 1];
    }
  }

  std::int64_t n_;
  T *d_, *square_;
  int max_sweeps_;
};

template <typename T>
bool tridiagonal_values(std::int64_t n, T* diagonal, T* off_diagonal, int max_sweeps) {
  for (std::int64_t i = 0; i + 1 < n; ++i) off_diagonal[i] *= off_diagonal[i];
  return TridiagonalValues<T>(n, diagonal, off_diagonal, max_sweeps).run();
}

}  // namespace keel::cpu::KEEL_ISA
