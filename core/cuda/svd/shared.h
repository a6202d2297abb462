#pragma once

// Singular values of an m x n matrix, m >= n, by all threads of a team. The way of core/cpu/svd_jacobi.h: rows and columns
// by size, A = Q R, and the columns of R^T turned until they are orthogonal, R^T J = V S, so A = (Q J) S V^T. Here the
// pairs of a round have no column in common and are turned at once.
//
// A column is the matter of a group of lanes, which are part of one warp: each has every so-many-th 16 bytes of it. Lanes
// add up in step, so all groups of a warp take the same way between two sums, those without a column too.
//
// A team has kLanes; thread(), size(), lane(), group(), groups(); sync() of all threads and any(), which asks them all;
// step(), a sync of a warp, any_in_step(), which asks it, and sum() and largest() over the lanes of a group; and fetch(),
// which may bring near what is read soon. On the host one thread is a team.

#include <cstdint>

#include "cuda/eigh/scale.h"
#include "cuda/svd/turn.h"

namespace keel::cuda {

/// A matrix, or its transpose, which is not wider than tall.
template <typename T>
struct SvdSource {
  const T* data;
  std::int64_t down, along;  ///< from one row, and one column, to the next

  KEEL_HOST_DEVICE T operator()(std::int64_t i, std::int64_t j) const {
    return data[i * down + j * along];
  }
};

/// Where the parts of a team's memory begin, in numbers of type T and in ints.
template <typename T>
struct SvdLayout {
  static constexpr int kPack = 16 / int(sizeof(T));
  /// Rows are sorted by size up to here: their sizes are kept beside the matrix.
  static constexpr int kMostSorted = 1024;

  int m, n, sorted, half, turned_step, column_step;

  KEEL_HOST_DEVICE SvdLayout(int rows, int columns)
      : m(rows),
        n(columns),
        sorted(rows <= kMostSorted ? rows : 0),
        half(packed(columns)),
        turned_step(apart(2 * half)),
        column_step(apart(packed(rows))) {}

  KEEL_HOST_DEVICE static int packed(int length) { return (length + kPack - 1) / kPack * kPack; }
  /// Columns begin in different banks.
  KEEL_HOST_DEVICE static int apart(int length) {
    return length * int(sizeof(T)) % 128 == 0 ? length + kPack : length;
  }
  /// R^T over J; Q's reflectors; U, where it is longer than J.
  KEEL_HOST_DEVICE std::int64_t turned() const { return std::int64_t(n) * turned_step; }
  KEEL_HOST_DEVICE std::int64_t columns() const { return std::int64_t(n) * column_step; }
  KEEL_HOST_DEVICE std::int64_t left() const { return m > n ? columns() : 0; }
  KEEL_HOST_DEVICE int numbers() const { return packed(8 * n + sorted); }
  KEEL_HOST_DEVICE int places() const { return 2 * n + sorted; }
};

template <typename T>
struct SvdMemory {
  T *turned, *columns, *left;  ///< aligned to 16 bytes
  T* numbers;
  int* places;
};

/// Neighbours that a lane reads and writes at once.
template <typename T>
struct alignas(16) SvdPack {
  static constexpr int kCount = 16 / int(sizeof(T));
  T at[kCount];
};

template <typename T, typename Team>
class TeamSvd {
  using Pack = SvdPack<T>;
  static constexpr int kPack = Pack::kCount;

 public:
  KEEL_HOST_DEVICE TeamSvd(const Team& team, const SvdLayout<T>& layout, const SvdMemory<T>& memory)
      : team_(team),
        layout_(layout),
        m_(layout.m),
        n_(layout.n),
        turned_(memory.turned),
        columns_(memory.columns),
        left_(layout.m > layout.n ? memory.left : memory.turned + layout.half),
        left_step_(layout.m > layout.n ? layout.column_step : layout.turned_step),
        square_(memory.numbers),
        size_(square_ + n_),
        scale_of_(size_ + n_),
        lead_(scale_of_ + n_),
        diagonal_(lead_ + n_),
        noise_(diagonal_ + n_),
        tail_(noise_ + n_),
        column_size_(tail_ + n_),
        row_size_(column_size_ + n_),
        column_at_(memory.places),
        order_(column_at_ + n_),
        row_at_(order_ + n_) {}

  /// False where an entry is not finite: then nothing is solved.
  KEEL_HOST_DEVICE bool solve(const SvdSource<T>& source) {
    if (!arrange(source)) return false;
    factor(m_, n_);
    extract();
    bool turned = n_ > 1;
    for (int sweep = 0; sweep < kMaxSvdSweeps && turned; ++sweep) turned = turn_all();
    converged_ = !turned;
    measure();
    form_left();
    finish_right();
    return true;
  }

  KEEL_HOST_DEVICE bool converged() const { return converged_; }

  /// value(c, x), left(i, c, x) and right(c, j, x) receive the results, vectors with the sign that makes the first of
  /// the largest entries of `signed_by_left ? left : right` positive.
  template <typename Value, typename Left, typename Right>
  KEEL_HOST_DEVICE void give(bool signed_by_left, const Value& value, const Left& left,
                             const Right& right) {
    for_each_column(0, n_, [&](int j, bool exists) {
      T peak = 0, size = -1;
      int place = m_;
      if (exists)
        for (int i = team_.lane(); i < (signed_by_left ? m_ : n_); i += Team::kLanes) {
          const T x = signed_by_left ? left_column(j)[i] : turned_column(j)[i];
          const int at = signed_by_left ? row_at(i) : column_at_[i];
          if (std::abs(x) > size || (std::abs(x) == size && at < place)) {
            size = std::abs(x);
            peak = x;
            place = at;
          }
        }
      const T top = team_.largest(size);
      // The first row among those of that size: no row is larger than m, and m is a number.
      const T first = -team_.largest(size == top ? T(-place) : T(-m_));
      const bool negative = size == top && T(place) == first && peak < 0;
      const T any = team_.largest(negative ? T(1) : T(0));
      if (exists && team_.lane() == 0) noise_[j] = any > 0 ? T(-1) : T(1);
    });
    team_.sync();
    for (int c = team_.thread(); c < n_; c += team_.size()) value(c, scale_up(size_[order_[c]]));
    for_each_entry(m_, n_, signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      left(row_at(i), c, noise_[j] * left_column(j)[i] + T(0));
    });
    for_each_entry(n_, n_, !signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      right(c, column_at_[i], noise_[j] * turned_column(j)[i] + T(0));
    });
  }

 private:
  KEEL_HOST_DEVICE T* turned_column(int j) const {
    return turned_ + std::int64_t(j) * layout_.turned_step;
  }
  KEEL_HOST_DEVICE T* column(int j) const {
    return columns_ + std::int64_t(j) * layout_.column_step;
  }
  KEEL_HOST_DEVICE T* left_column(int j) const { return left_ + std::int64_t(j) * left_step_; }
  KEEL_HOST_DEVICE int row_at(int i) const { return layout_.sorted > 0 ? row_at_[i] : i; }
  KEEL_HOST_DEVICE T scale_up(T x) const { return std::ldexp(x, exponent_); }

  KEEL_HOST_DEVICE static Pack& pack(T* column, int c) {
    return reinterpret_cast<Pack*>(column)[c];
  }

  /// body(j, exists) for the columns first <= j < count, a group each, as often for every group.
  template <typename Body>
  KEEL_HOST_DEVICE void for_each_column(int first, int count, const Body& body) const {
    for (int base = first; base < count; base += team_.groups()) {
      const int j = base + team_.group();
      body(j, j < count);
    }
  }

  /// body(i, j) for all entries, neighbouring threads on neighbouring columns, or rows.
  template <typename Body>
  KEEL_HOST_DEVICE void for_each_entry(int rows, int count, bool along_rows,
                                       const Body& body) const {
    const unsigned fast = unsigned(along_rows ? count : rows),
                   all = unsigned(rows) * unsigned(count);
    KEEL_UNROLL_4
    for (unsigned at = unsigned(team_.thread()); at < all; at += unsigned(team_.size())) {
      const int slow = int(at / fast), quick = int(at % fast);
      along_rows ? body(slow, quick) : body(quick, slow);
    }
  }

  /// The sum over a group of x y, from pack `first` on, of `packs`.
  KEEL_HOST_DEVICE T dot(bool exists, int first, int packs, T* x, T* y) const {
    T sum = 0;
    if (exists)
      for (int c = own_from(first); c < packs; c += Team::kLanes) {
        const Pack a = pack(x, c), b = pack(y, c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) sum += a.at[e] * b.at[e];
      }
    return team_.sum(sum);
  }

  /// This lane's first pack from `first` on. A pack is always the same lane's, so that it meets what it wrote itself.
  KEEL_HOST_DEVICE int own_from(int first) const {
    return first + ((team_.lane() - first) & (Team::kLanes - 1));
  }

  KEEL_HOST_DEVICE int half_packs() const { return layout_.half / kPack; }

  /// The matrix in `columns_`, at unit size, rows and columns by their largest entries, so that QR meets large numbers
  /// first. False where an entry is not finite.
  KEEL_HOST_DEVICE bool arrange(const SvdSource<T>& source) {
    const bool along_rows = source.along == 1;
    for_each_entry(m_, n_, along_rows, [&](int i, int j) { column(j)[i] = source(i, j); });
    team_.sync();
    for_each_column(0, n_, [&](int j, bool exists) {
      T size = 0;
      if (exists)
        for (int i = team_.lane(); i < m_; i += Team::kLanes)
          size = std::fmax(size, UnitScale<T>::magnitude(column(j)[i]));
      size = team_.largest(size);
      if (exists && team_.lane() == 0) column_size_[j] = size;
    });
    for (int i = team_.thread(); i < layout_.sorted; i += team_.size()) {
      T size = 0;
      for (int j = 0; j < n_; ++j) size = std::fmax(size, std::abs(column(j)[i]));
      row_size_[i] = size;
    }
    team_.sync();
    T largest = 0;
    for (int j = 0; j < n_; ++j) largest = std::fmax(largest, column_size_[j]);
    const UnitScale<T> scale(largest);
    if (!scale.finite) return false;
    exponent_ = scale.exponent;
    sort(n_, column_size_, column_at_);
    sort(layout_.sorted, row_size_, row_at_);
    team_.sync();
    for (int k = team_.thread(); k < n_; k += team_.size())
      noise_[k] = svd_noise(layout_.sorted > 0 ? scale.down(row_size_[row_at_[k]]) : T(1),
                            scale.down(column_size_[column_at_[k]]));
    for_each_entry(m_, n_, along_rows, [&](int i, int j) {
      column(j)[i] = scale.down(source(row_at(i), column_at_[j]));
    });
    // What lies between a column and its last pack's end is added up along.
    const int end = SvdLayout<T>::packed(m_);
    for (int j = team_.thread(); j < n_; j += team_.size())
      for (int i = m_; i < end; ++i) column(j)[i] = 0;
    team_.sync();
    return true;
  }

  /// at[place] = the one that comes there in descending order; equal ones keep theirs. No barrier.
  KEEL_HOST_DEVICE void sort(int count, const T* sizes, int* at) const {
    for (int i = team_.thread(); i < count; i += team_.size()) {
      const T own = sizes[i];
      int place = 0;
      KEEL_UNROLL_4
      for (int k = 0; k < count; ++k) place += sizes[k] > own || (sizes[k] == own && k < i);
      at[place] = i;
    }
  }

  /// Entry r of reflector k, given column k's own.
  KEEL_HOST_DEVICE static T reflector(int k, int r, T own, T lead) {
    return r > k ? own : r == k ? lead : T(0);
  }

  /// The first `count` columns, of `rows` entries: R above the diagonal and in diagonal_, reflectors from the diagonal
  /// down, their first entry in lead_: I - scale v v^T.
  KEEL_HOST_DEVICE void factor(int rows, int count) {
    const int packs = SvdLayout<T>::packed(rows) / kPack;
    for_each_column(0, 1, [&](int j, bool exists) { set_tail(j, exists, packs); });
    team_.sync();
    for (int k = 0; k < count; ++k) {
      T* const own = column(k);
      const T alpha = own[k], square = tail_[k];
      const T norm = std::sqrt(alpha * alpha + square);
      const bool is_noise = norm <= noise_[k];
      const bool reflect = square > kTinySvdSquare<T> && !is_noise;  // the same for all threads
      const T scale = reflect ? 1 / (norm * (norm + std::abs(alpha))) : T(0);
      const T lead = alpha < 0 ? alpha - norm : alpha + norm;
      if (team_.thread() == 0) {
        scale_of_[k] = scale;
        lead_[k] = lead;
        diagonal_[k] = is_noise ? T(0) : !reflect ? alpha : alpha < 0 ? norm : -norm;
      }
      const int first = k / kPack;
      for_each_column(k + 1, count, [&](int j, bool exists) {
        T* const other = column(exists ? j : k);
        if (reflect) {
          T sum = 0;
          if (exists)
            for (int c = own_from(first); c < packs; c += Team::kLanes) {
              const Pack v = pack(own, c), x = pack(other, c);
              KEEL_UNROLL
              for (int e = 0; e < kPack; ++e)
                sum += reflector(k, c * kPack + e, v.at[e], lead) * x.at[e];
            }
          const T part = scale * team_.sum(sum);
          if (exists)
            for (int c = own_from(first); c < packs; c += Team::kLanes) {
              const Pack v = pack(own, c);
              Pack x = pack(other, c);
              KEEL_UNROLL
              for (int e = 0; e < kPack; ++e)
                x.at[e] -= part * reflector(k, c * kPack + e, v.at[e], lead);
              pack(other, c) = x;
            }
        }
        // The group that has the next column is the first to know its length.
        if (j - team_.group() == k + 1) set_tail(j, exists && j == k + 1, packs);
      });
      team_.sync();
    }
  }

  /// The square of column j below its diagonal. Called by groups in step.
  KEEL_HOST_DEVICE void set_tail(int j, bool exists, int packs) {
    T sum = 0;
    if (exists)
      for (int c = own_from(j / kPack); c < packs; c += Team::kLanes) {
        const Pack x = pack(column(j), c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) {
          const T below = c * kPack + e > j ? x.at[e] : T(0);
          sum += below * below;
        }
      }
    sum = team_.sum(sum);
    if (exists && team_.lane() == 0) tail_[j] = sum;
  }

  /// R^T and I to turned_; what is left of the columns are the reflectors, whole.
  KEEL_HOST_DEVICE void extract() {
    for_each_entry(layout_.half, n_, false, [&](int i, int j) {
      T* const to = turned_column(j);
      to[i] = i < j || i >= n_ ? T(0) : i == j ? diagonal_[j] : column(i)[j];
      to[layout_.half + i] = T(i == j);
    });
    team_.sync();
    complete_reflectors(n_);
  }

  KEEL_HOST_DEVICE void complete_reflectors(int count) {
    for (int k = team_.group(); k < count; k += team_.groups())
      for (int i = team_.lane(); i <= k; i += Team::kLanes) column(k)[i] = i == k ? lead_[k] : T(0);
    team_.sync();
  }

  /// The reflections of the first `count` columns, last one first, of a vector of `packs` packs. By groups in step.
  KEEL_HOST_DEVICE void reflect_back(int count, int packs, T* x, bool exists) const {
    for (int k = count - 1; k >= 0; --k) {
      const T scale = scale_of_[k];
      if (scale == 0) continue;
      T* const v = column(k);
      const T part = scale * dot(exists, k / kPack, packs, v, x);
      if (!exists) continue;
      for (int c = own_from(k / kPack); c < packs; c += Team::kLanes) {
        const Pack a = pack(v, c);
        Pack b = pack(x, c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) b.at[e] -= part * a.at[e];
        pack(x, c) = b;
      }
    }
  }

  KEEL_HOST_DEVICE void clear(int j) const {
    for (int c = team_.lane(); c < half_packs(); c += Team::kLanes)
      pack(turned_column(j), c) = Pack{};
  }

  KEEL_HOST_DEVICE void measure() {
    for_each_column(0, n_, [&](int j, bool exists) {
      T* const own = turned_column(exists ? j : 0);
      T square = dot(exists, 0, half_packs(), own, own);
      if (!exists) return;
      if (square < kTinySvdSquare<T>) {
        clear(j);
        square = 0;
      }
      if (team_.lane() == 0) {
        square_[j] = square;
        size_[j] = std::sqrt(square);
      }
    });
    team_.sync();
  }

  /// One sweep: every pair of columns once. Whether any was turned.
  KEEL_HOST_DEVICE bool turn_all() {
    const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n_));
    measure();
    // A round robin: the last one stays, the others go round.
    const int circle = n_ - 1 + n_ % 2, pairs = (circle + 1) / 2;
    bool turned = false;
    for (int round = 0; round < circle; ++round) {
      for_each_column(0, pairs, [&](int i, bool exists) {
        const int one = i == 0 ? circle : round + i < circle ? round + i : round + i - circle;
        const int two = round >= i ? round - i : round - i + circle;
        const int p = one < two ? one : two, q = one < two ? two : one;
        turned = turn_pair(p, q, exists && q < n_, tolerance) || turned;
      });
      team_.sync();
    }
    return team_.any(turned);
  }

  KEEL_HOST_DEVICE bool turn_pair(int p, int q, bool exists, T tolerance) {
    T *const x = turned_column(exists ? p : 0), *const y = turned_column(exists ? q : 0);
    const T x_square = exists ? square_[p] : T(0), y_square = exists ? square_[q] : T(0);
    if (exists)
      for (int c = half_packs() + team_.lane(); c < 2 * half_packs(); c += Team::kLanes) {
        team_.fetch(&pack(x, c));
        team_.fetch(&pack(y, c));
      }
    const T product = dot(exists, 0, half_packs(), x, y);
    const bool turns = x_square > 0 && y_square > 0 &&
                       is_to_turn(product, short_root(x_square), short_root(y_square), tolerance);
    T x_after = x_square, y_after = y_square;
    if (turns) {
      const ColumnTurn<T> turn(x_square, y_square, product);
      x_after -= turn.moved;
      y_after += turn.moved;
      for (int c = team_.lane(); c < 2 * half_packs(); c += Team::kLanes) {
        Pack a = pack(x, c), b = pack(y, c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) turn(a.at[e], b.at[e]);
        pack(x, c) = a;
        pack(y, c) = b;
      }
    }
    // What is left of a cancellation is measured again, and is zero where it is what rounding has left.
    const bool x_lost = turns && x_after < T(0.125) * x_square,
               y_lost = turns && y_after < T(0.125) * y_square;
    if (team_.any_in_step(x_lost || y_lost)) {
      const T x_again = dot(x_lost, 0, half_packs(), x, x),
              y_again = dot(y_lost, 0, half_packs(), y, y);
      if (x_lost) x_after = keep_or_clear(p, x_square, x_again);
      if (y_lost) y_after = keep_or_clear(q, y_square, y_again);
    }
    team_.step();  // all lanes have read the squares
    if (turns && team_.lane() == 0) {
      square_[p] = x_after;
      square_[q] = y_after;
    }
    return turns;
  }

  KEEL_HOST_DEVICE T keep_or_clear(int j, T before, T square) const {
    if (square >= kSvdNoiseSquare<T> * before + kTinySvdSquare<T>) return square;
    clear(j);
    return 0;
  }

  /// U = Q J.
  KEEL_HOST_DEVICE void form_left() {
    const int packs = SvdLayout<T>::packed(m_) / kPack;
    for_each_column(0, n_, [&](int j, bool exists) {
      T* const u = left_column(exists ? j : 0);
      if (exists && m_ > n_) {
        T* const turns = turned_column(j) + layout_.half;
        for (int c = team_.lane(); c < packs; c += Team::kLanes)
          pack(u, c) = c < half_packs() ? pack(turns, c) : Pack{};
      }
      reflect_back(n_, packs, u, exists);
    });
    team_.sync();
  }

  /// Values in order, V of length one; for values of zero, what the others leave.
  KEEL_HOST_DEVICE void finish_right() {
    sort(n_, size_, order_);
    bool missing = false;
    for (int j = team_.group(); j < n_; j += team_.groups()) {
      const T inverse = size_[j] > 0 ? 1 / size_[j] : T(0);
      missing = missing || size_[j] == 0;
      for (int c = team_.lane(); c < half_packs(); c += Team::kLanes) {
        Pack x = pack(turned_column(j), c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) x.at[e] *= inverse;
        pack(turned_column(j), c) = x;
      }
    }
    if (team_.any(missing)) complete_right();
  }

  /// V's columns that are not zero, in order, are the first of an orthogonal matrix made of reflections; the others are
  /// taken from the rest of it.
  KEEL_HOST_DEVICE void complete_right() {
    team_.sync();
    int known = 0;
    while (known < n_ && size_[order_[known]] > 0) ++known;
    for_each_entry(layout_.half, known, false,
                   [&](int i, int c) { column(c)[i] = turned_column(order_[c])[i]; });
    for (int k = team_.thread(); k < n_; k += team_.size()) noise_[k] = 0;
    team_.sync();
    factor(n_, known);
    complete_reflectors(known);
    for_each_column(known, n_, [&](int c, bool exists) {
      T* const x = turned_column(exists ? order_[c] : 0);
      if (exists)
        for (int i = team_.lane(); i < half_packs(); i += Team::kLanes) {
          Pack unit;
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) unit.at[e] = T(i * kPack + e == c);
          pack(x, i) = unit;
        }
      reflect_back(known, half_packs(), x, exists);
    });
    team_.sync();
  }

  const Team& team_;
  SvdLayout<T> layout_;
  int m_, n_, exponent_ = 0;
  bool converged_ = true;
  T *turned_, *columns_, *left_;
  int left_step_;
  T *square_, *size_, *scale_of_, *lead_, *diagonal_, *noise_, *tail_, *column_size_, *row_size_;
  int *column_at_, *order_, *row_at_;
};

}  // namespace keel::cuda
