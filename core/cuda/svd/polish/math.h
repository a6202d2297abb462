#pragma once

// Singular values from the eigenvectors of A^T A, by the threads of a team. See polish_reach.h.

#include <cmath>
#include <limits>

#include "cuda/svd/layouts.h"
#include "cuda/svd/polish/tiles.h"
#include "formulas/polish_reach.h"
#include "formulas/regroup.h"
#include "formulas/rotation.h"
#include "formulas/scale.h"
#include "keel/svd.h"

namespace keel::cuda {

/// How many correction steps to take before Jacobi's method takes over.
inline constexpr int kMostPolish = 8;

/// How the correction ends.
enum class PolishEnd {
  solved,  ///< all columns are orthogonal
  left,    ///< to another method
  turn     ///< the columns must be turned by the eigenvectors of what pause() gives
};

/// The first step: computes A^T A at unit scale.
template <typename T, int WIDE, typename Team>
class TeamGram : public TileWork<T, WIDE, Team> {
  using Base = TileWork<T, WIDE, Team>;
  using Base::team;

 public:
  using Base::for_each_entry;

  KEEL_HOST_DEVICE TeamGram(const Team& team, const PolishLayout<T>& layout, T* memory)
      : TeamGram(team, layout, memory, memory + layout.stack()) {}
  /// With layout.angles() numbers at `product` for A^T A.
  KEEL_HOST_DEVICE TeamGram(const Team& team, const PolishLayout<T>& layout, T* memory, T* product)
      : Base(team), layout_(layout), x_(memory), gram_(product) {}

  /// Returns whether the method suits A: finite, not zero, not steep. `exponent` is the power of two divided out. If so,
  /// leaves A at unit scale in the memory as TeamPolish::load does.
  KEEL_HOST_DEVICE bool solve(const SvdSource<T>& source, int& exponent) {
    const int m = layout_.m, n = layout_.n, step = layout_.step;
    for_each_entry(layout_.rows, layout_.columns, source.along == 1,
                   [&](int i, int j) { x_[j * step + i] = i < m && j < n ? source(i, j) : T(0); });
    team().sync();
    T* const sizes = gram_;  // of the columns; the memory is free until the product
    this->for_each_column(0, n, [&](int j, bool exists) {
      T size = 0;
      if (exists)
        for (int i = team().lane(); i < m; i += Team::kLanes)
          size = std::fmax(size, UnitScale<T>::magnitude(x_[j * step + i]));
      size = team().largest(size);
      if (exists && team().lane() == 0) sizes[j] = size;
    });
    // The sizes of few rows, one per group, cost little here, beside those of the columns.
    const bool few_rows = m <= team().groups();
    T row_size = -1;
    if (few_rows) {
      if (team().group() < m)
        for (int j = team().lane(); j < n; j += Team::kLanes)
          row_size = std::fmax(row_size, std::abs(x_[j * step + team().group()]));
      row_size = team().largest(row_size);
    }
    team().sync();
    T largest = 0, smallest = std::numeric_limits<T>::infinity();
    for (int j = team().lane(); j < n; j += Team::kLanes) {
      largest = std::fmax(largest, sizes[j]);
      smallest = std::fmin(smallest, sizes[j]);
    }
    largest = team().largest(largest);
    smallest = -team().largest(-smallest);
    const T least = largest / kSteepFrom;
    const int large_rows =
        few_rows ? team().count(team().lane() == 0 && row_size >= least) : rows_from(least);
    const UnitScale<T> scale(largest);
    exponent = scale.exponent;
    if (!scale.finite || !(largest > 0)) return false;
    const bool steep = smallest < least || large_rows < n;
    if (steep && smallest < least_of_dominated<T>(n) * largest) return false;
    int i0 = 0, j0 = 0;
    if (steep) {
      while (sizes[j0] != largest) ++j0;
      while (std::abs(x_[j0 * step + i0]) != largest) ++i0;
      team().sync();
    }
    for_each_entry(m, n, false,
                   [&](int i, int j) { x_[j * step + i] = scale.down(x_[j * step + i]); });
    team().sync();
    if (steep &&
        !one_dominates(team(), m, n, i0, j0, [&](int i, int j) { return x_[j * step + i]; }))
      return false;
    this->gram(layout_.columns, layout_.rows / Base::kPack, x_, step, gram_, layout_.angle_step);
    return true;
  }

  /// Entry (i, j) of A^T A.
  KEEL_HOST_DEVICE T operator()(int i, int j) const { return gram_[j * layout_.angle_step + i]; }

 private:
  /// How many rows have an entry of this size. Ends with a barrier.
  KEEL_HOST_DEVICE int rows_from(T least) const {
    int rows = 0;
    for (int i = team().thread(); i < layout_.m; i += team().size()) {
      T size = 0;
      KEEL_UNROLL_4
      for (int j = 0; j < layout_.n; ++j)
        size = std::fmax(size, std::abs(x_[j * layout_.step + i]));
      rows += size >= least ? 1 : 0;
    }
    int sums[1] = {rows};
    team().total(sums);
    return sums[0];
  }

  PolishLayout<T> layout_;
  T *x_, *gram_;
};

/// The last step: makes the columns of A V orthogonal.
template <typename T, int WIDE, typename Team>
class TeamPolish : public TileWork<T, WIDE, Team> {
  using Base = TileWork<T, WIDE, Team>;
  using Base::dot, Base::for_each_column, Base::for_each_entry, Base::kPack, Base::multiply,
      Base::pack, Base::sort, Base::team;
  using typename Base::Pack;
  using Reach = PolishReach<T>;

 public:
  KEEL_HOST_DEVICE TeamPolish(const Team& team, const PolishLayout<T>& layout, T* memory)
      : Base(team),
        layout_(layout),
        x_(memory),
        k_(x_ + layout.stack()),
        square_(k_ + layout.angles()),
        size_(square_ + layout.columns),
        sign_(size_ + layout.columns),
        order_(reinterpret_cast<int*>(sign_ + layout.columns)) {}

  /// Loads A, before the eigenvectors are available. Has no barrier.
  KEEL_HOST_DEVICE void load(const SvdSource<T>& source, int exponent) {
    const int m = layout_.m, n = layout_.n;
    exponent_ = exponent;
    UnitScale<T> scale(T(1));
    scale.set(exponent);
    for_each_entry(layout_.rows, layout_.columns, source.along == 1, [&](int i, int j) {
      x(j)[i] = i < m && j < n ? scale.down(source(i, j)) : T(0);
    });
  }

  /// In place of load(), if TeamGram left A at the same place and nobody wrote there since.
  KEEL_HOST_DEVICE void keep(int exponent) { exponent_ = exponent; }

  /// vector(i, j) is entry i of the j-th of the vectors of TeamGram's matrix, in the order of their values; all are read
  /// before the first barrier. Returns PolishEnd::turn only if it may.
  template <typename Vector>
  KEEL_HOST_DEVICE PolishEnd solve(const Vector& vector, bool may_turn) {
    const int n = layout_.n;
    for_each_entry(layout_.columns, layout_.columns, true, [&](int i, int j) {
      x(j)[layout_.rows + i] = i < n && j < n ? vector(i, j) : T(0);
    });
    team().sync();
    multiply(layout_.columns, layout_.rows / kPack, x_, layout_.step, x_ + layout_.rows,
             layout_.step, T(1), false);
    return polish(may_turn);
  }

  /// After PolishEnd::turn: gives X over J, layout.stack() numbers, and the matrix whose eigenvectors turn() takes
  /// (regroup.h).
  template <typename Product>
  KEEL_HOST_DEVICE void pause(T* stack, const Product& product) {
    const int n = layout_.n, size = int(layout_.stack());
    for (int at = team().thread(); at < size; at += team().size()) stack[at] = x_[at];
    this->gram(layout_.columns, layout_.rows / kPack, x_, layout_.step, k_, layout_.angle_step);
    T* const numbers = x_;  // no longer needed
    regroup(team(), n, Reach::kApart, k_, layout_.angle_step, numbers,
            reinterpret_cast<int*>(numbers + kRegroupNumbers * n));
    for_each_entry(n, n, true, [&](int i, int j) { product(i, j, k(j, i)); });
  }

  /// Goes on with what pause() gave, and the eigenvectors.
  template <typename Turn>
  KEEL_HOST_DEVICE PolishEnd turn(const T* stack, int exponent, const Turn& turn, bool may_turn) {
    const int n = layout_.n, columns = layout_.columns, size = int(layout_.stack());
    exponent_ = exponent;
    for (int at = team().thread(); at < size; at += team().size()) x_[at] = stack[at];
    for_each_entry(columns, columns, true,
                   [&](int i, int j) { k(i, j) = i < n && j < n ? turn(i, j) : T(0); });
    team().sync();
    multiply(columns, (layout_.rows + columns) / kPack, x_, layout_.step, k_, layout_.angle_step,
             T(1), false);
    return polish(may_turn);
  }

  /// Like TeamSvd::give.
  template <typename Value, typename Left, typename Right>
  KEEL_HOST_DEVICE void give(bool signed_by_left, const Value& value, const Left& left,
                             const Right& right) {
    const int m = layout_.m, n = layout_.n, rows = layout_.rows;
    T* const factor = square_;  // from a column to its vector
    for_each_column(0, n, [&](int j, bool exists) {
      T* const own = x(exists ? j : 0);
      const T square = dot(exists, 0, rows / kPack, own, own);
      const T sign = this->sign(
          exists, signed_by_left ? m : n, [&](int i) { return own[signed_by_left ? i : rows + i]; },
          [](int i) { return i; });
      if (!exists || team().lane() != 0) return;
      const T size = std::sqrt(square);
      size_[j] = size;
      sign_[j] = sign;
      factor[j] = sign / size;
    });
    team().sync();
    sort(n, size_, order_);
    team().sync();
    for (int c = team().thread(); c < n; c += team().size())
      value(c, std::ldexp(size_[order_[c]], exponent_));
    for_each_entry(m, n, signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      left(i, c, factor[j] * x(j)[i] + T(0));
    });
    for_each_entry(n, n, !signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      right(c, i, sign_[j] * x(j)[rows + i] + T(0));
    });
  }

 private:
  KEEL_HOST_DEVICE T* x(int j) const { return x_ + j * layout_.step; }
  KEEL_HOST_DEVICE T& k(int i, int j) const { return k_[j * layout_.angle_step + i]; }

  /// X and J += factor X K, factor J K.
  KEEL_HOST_DEVICE void add_correction(T factor) {
    multiply(layout_.columns, (layout_.rows + layout_.columns) / kPack, x_, layout_.step, k_,
             layout_.angle_step, factor, true, order_);
  }
  /// K = [K +] factor K^2
  KEEL_HOST_DEVICE void square_angles(T factor, bool adds) {
    multiply(layout_.columns, layout_.columns / kPack, k_, layout_.angle_step, k_,
             layout_.angle_step, factor, adds);
  }

  KEEL_HOST_DEVICE PolishEnd polish(bool may_turn) {
    bool masked_before = false;
    for (int step = 0; step < kMostPolish; ++step) {
      const Found found = measure();
      if (found.angles == 0) return PolishEnd::solved;
      // Up to four times as much takes one step more.
      const bool hard = found.angles > (may_turn ? 4 : 1) * Reach::kThird,
                 masked =
                     may_turn && hard && (step > 1 || !few_are_large(found.angles, found.apart));
      if (masked) {
        if (masked_before) return PolishEnd::turn;
        masked_before = true;
      } else {
        if (too_many_angles(layout_.n, found.angles)) return PolishEnd::left;
        if (hard) {
          rotate_neighbours(step % 2);
          continue;
        }
      }
      const T angles = masked ? found.apart : found.angles;
      const bool many = angles > Reach::kThird;
      if (masked || many)
        limit(masked ? Reach::kApart : T(1), many ? std::sqrt(Reach::kThird / angles) : T(1));
      if (angles > Reach::kSecond) {
        add_correction(1);
        square_angles(1, false);
        add_correction(T(0.5));
        square_angles(1, false);
        add_correction(T(0.375));
        continue;
      }
      if (angles > Reach::kFirst) square_angles(T(0.5), true);
      add_correction(1);
      if (!masked && found.suffices) return PolishEnd::solved;
    }
    return PolishEnd::left;
  }

  /// Takes out of K what is larger than `most`, and scales the rest.
  KEEL_HOST_DEVICE void limit(T most, T share) {
    for_each_entry(layout_.columns, layout_.columns, false, [&](int i, int j) {
      T& angle = k(i, j);
      angle = std::abs(angle) <= most ? share * angle : T(0);
    });
    team().sync();
  }

  struct Found {
    T angles;       ///< sum of all k_ij^2; 0: columns are orthogonal; NaN: one is almost zero
    T apart;        ///< the part of it up to PolishReach::kApart
    bool suffices;  ///< whether the columns are orthogonal once these angles are corrected
  };

  /// Computes K and its properties.
  KEEL_HOST_DEVICE Found measure() {
    const int n = layout_.n, columns = layout_.columns;
    const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
    this->gram(columns, layout_.rows / kPack, x_, layout_.step, k_, layout_.angle_step);
    T* const inverse = sign_;  // the memory is free until give()
    int* const busy = order_;  // likewise: which tiles have nonzero columns of K
    for (int j = team().thread(); j < columns; j += team().size()) {
      const T square = k(j, j);
      square_[j] = square;
      size_[j] = std::sqrt(square);
      inverse[j] = 1 / size_[j];
      busy[j] = 0;
    }
    team().sync();
    T sums[4] = {};
    T &angles = sums[0], &cosines = sums[1], &moved = sums[2], &apart = sums[3];
    bool rotates = false;
    for_each_entry(columns, columns, false, [&](int i, int j) {
      const T w = k(i, j);
      T angle = 0;
      if (i != j && i < n && j < n) {
        angle = polish_angle(w, square_[j], square_[i], tolerance * size_[i] * size_[j], rotates);
        const T cosine = w * inverse[i] * inverse[j], part = angle * size_[i] * inverse[j];
        cosines += cosine * cosine;
        moved += part * part;
      }
      k(i, j) = angle;
      if (angle != 0) busy[j / Base::kWide] = 1;
      angles += polish_square(angle);
      if (std::abs(angle) <= Reach::kApart) apart += angle * angle;
    });
    if (!team().any(rotates)) return {T(0), T(0), true};
    team().total(sums);
    // The remaining error is a sum of products of the cosines and the moved parts, relative to the columns' sizes.
    const T rest = 4 * cosines * moved;
    return {angles, apart, 16 * rest <= tolerance * tolerance};
  }

  /// Angles too large for a common correction are between neighbours. Rotates every second pair of neighbours
  /// separately.
  KEEL_HOST_DEVICE void rotate_neighbours(int first) {
    const int packs = (layout_.rows + layout_.columns) / kPack, pairs = (layout_.n - first) / 2;
    for_each_entry(packs, pairs, false, [&](int c, int i) {
      const int p = first + 2 * i, q = p + 1;
      const T angle = k(q, p), gap = square_[q] - square_[p];
      if (angle == 0) return;
      const ColumnRotation<T> rotation(square_[p], square_[q], gap == 0 ? T(1) : -angle * gap);
      Pack a = pack(x(p), c), b = pack(x(q), c);
      KEEL_UNROLL
      for (int e = 0; e < kPack; ++e) rotation(a.at[e], b.at[e]);
      pack(x(p), c) = a;
      pack(x(q), c) = b;
    });
    team().sync();
  }

  PolishLayout<T> layout_;
  int exponent_ = 0;
  T *x_, *k_, *square_, *size_, *sign_;
  int* order_;
};

/// What a matrix waits with until its columns are turned, in global memory.
template <typename T>
struct PolishPause {
  T *products, *stacks;  ///< what pause() gives
  int* exponents;
  bool* wanted;  ///< whether a matrix waits; null: none can

  template <int WIDE, typename Team>
  KEEL_HOST_DEVICE void note(const Team& team, TeamPolish<T, WIDE, Team>& solver, PolishEnd end,
                             std::int64_t at, const PolishLayout<T>& layout) const {
    if (wanted == nullptr) return;
    const int n = layout.n;
    T* const product = products + at * n * n;
    if (team.thread() == 0) wanted[at] = end == PolishEnd::turn;
    if (end == PolishEnd::turn)
      solver.pause(stacks + at * layout.stack(),
                   [&](int i, int j, T x) { product[i * n + j] = x; });
  }
};

/// Where the results go.
template <typename T>
struct PolishResults {
  T* values;
  Rectangles<T> left, right;
  SvdStatus* status;
  bool* unsolved;  ///< which matrices another solver must still solve

  /// Those of matrix b, which is solved. `wide` if it is wider than tall.
  template <int WIDE, typename Team>
  KEEL_HOST_DEVICE void store(const Team& team, TeamPolish<T, WIDE, Team>& solver, std::int64_t b,
                              int n, bool wide) const {
    T *const own_values = values + b * n, *const own_left = left[b], *const own_right = right[b];
    const std::int64_t down = left.row_stride, across = right.row_stride;
    solver.give(
        !wide, [&](int c, T x) { own_values[c] = x; },
        [&](int i, int c, T x) {
          *(wide ? own_right + c * across + i : own_left + i * down + c) = x;
        },
        [&](int c, int j, T x) {
          *(wide ? own_left + j * down + c : own_right + c * across + j) = x;
        });
    if (status != nullptr && team.thread() == 0) status[b] = SvdStatus::converged;
  }
};

}  // namespace keel::cuda
