#pragma once

// Singular values of an m x n matrix, m >= n, by all threads of a team. The method is that of core/cpu/svd_jacobi.h:
// sort rows and columns by size, A = Q R, and rotate the columns of R^T until they are orthogonal, R^T J = V S, so A
// = (Q J) S V^T.

#include "cuda/svd/jacobi/reflections.h"
#include "cuda/svd/jacobi/rotations.h"
#include "cuda/svd/layouts.h"
#include "formulas/scale.h"

namespace keel::cuda {

template <typename T>
struct SvdMemory {
  T *rotated, *columns, *left;  ///< aligned to 16 bytes
  T* numbers;
  int* places;
};

/// Team and LongTeam are the same threads, grouped for columns of n and of m entries.
template <typename T, typename Team, typename LongTeam = Team>
class TeamSvd {
  using Work = ColumnWork<T, LongTeam>;
  using Pack = SvdPack<T>;
  static constexpr int kPack = Pack::kCount;

 public:
  KEEL_HOST_DEVICE TeamSvd(const Team& team, const LongTeam& long_team, const SvdLayout<T>& layout,
                           const SvdMemory<T>& memory)
      : team_(long_team),
        layout_(layout),
        m_(layout.m),
        n_(layout.n),
        left_(layout.m > layout.n ? memory.left : memory.rotated + layout.half),
        left_step_(layout.m > layout.n ? layout.column_step : layout.rotated_step),
        rotated_(team, n_, memory.rotated, layout.half, layout.rotated_step, memory.numbers),
        q_(long_team, memory.columns, layout.column_step, memory.numbers + 2 * n_, n_),
        sign_(memory.numbers + 7 * n_),
        column_size_(sign_ + n_),
        row_size_(column_size_ + n_),
        column_at_(memory.places),
        order_(column_at_ + n_),
        row_at_(order_ + n_) {}

  /// Returns false, with nothing solved, if an entry is not finite.
  KEEL_HOST_DEVICE bool solve(const SvdSource<T>& source) {
    if (!arrange(source)) return false;
    q_.factor(m_, n_);
    extract();
    converged_ = rotated_.solve();
    form_left();
    finish_right();
    return true;
  }

  KEEL_HOST_DEVICE bool converged() const { return converged_; }

  /// Passes the results to value(c, x), left(i, c, x) and right(c, j, x). Signs make the first of the largest entries
  /// of the left (`signed_by_left`) or right vector positive.
  template <typename Value, typename Left, typename Right>
  KEEL_HOST_DEVICE void give(bool signed_by_left, const Value& value, const Left& left,
                             const Right& right) {
    q_.for_each_column(0, n_, [&](int j, bool exists) {
      const T sign = q_.sign(
          exists, signed_by_left ? m_ : n_,
          [&](int i) { return signed_by_left ? left_column(j)[i] : rotated_.column(j)[i]; },
          [&](int i) { return signed_by_left ? row_at(i) : column_at_[i]; });
      if (exists && team_.lane() == 0) sign_[j] = sign;
    });
    team_.sync();
    for (int c = team_.thread(); c < n_; c += team_.size())
      value(c, std::ldexp(rotated_.size(order_[c]), exponent_));
    q_.for_each_entry(m_, n_, signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      left(row_at(i), c, sign_[j] * left_column(j)[i] + T(0));
    });
    q_.for_each_entry(n_, n_, !signed_by_left, [&](int i, int c) {
      const int j = order_[c];
      right(c, column_at_[i], sign_[j] * rotated_.column(j)[i] + T(0));
    });
  }

 private:
  KEEL_HOST_DEVICE T* left_column(int j) const { return left_ + std::int64_t(j) * left_step_; }
  KEEL_HOST_DEVICE int row_at(int i) const { return layout_.sorted > 0 ? row_at_[i] : i; }
  KEEL_HOST_DEVICE int half_packs() const { return layout_.half / kPack; }

  /// Loads the matrix into Q's columns, at unit scale, with rows and columns sorted by their largest entries, so that
  /// QR meets large numbers first. Returns false if an entry is not finite.
  KEEL_HOST_DEVICE bool arrange(const SvdSource<T>& source) {
    const bool along_rows = source.along == 1;
    q_.for_each_entry(m_, n_, along_rows, [&](int i, int j) { q_.column(j)[i] = source(i, j); });
    team_.sync();
    q_.for_each_column(0, n_, [&](int j, bool exists) {
      T size = 0;
      if (exists)
        for (int i = team_.lane(); i < m_; i += LongTeam::kLanes)
          size = std::fmax(size, UnitScale<T>::magnitude(q_.column(j)[i]));
      size = team_.largest(size);
      if (exists && team_.lane() == 0) column_size_[j] = size;
    });
    for (int i = team_.thread(); i < layout_.sorted; i += team_.size()) {
      T size = 0;
      for (int j = 0; j < n_; ++j) size = std::fmax(size, std::abs(q_.column(j)[i]));
      row_size_[i] = size;
    }
    team_.sync();
    T largest = 0;
    for (int j = 0; j < n_; ++j) largest = std::fmax(largest, column_size_[j]);
    const UnitScale<T> scale(largest);
    if (!scale.finite) return false;
    exponent_ = scale.exponent;
    q_.sort(n_, column_size_, column_at_);
    q_.sort(layout_.sorted, row_size_, row_at_);
    team_.sync();
    for (int k = team_.thread(); k < n_; k += team_.size())
      q_.noise(k) = svd_noise(layout_.sorted > 0 ? scale.down(row_size_[row_at_[k]]) : T(1),
                              scale.down(column_size_[column_at_[k]]));
    q_.for_each_entry(m_, n_, along_rows, [&](int i, int j) {
      q_.column(j)[i] = scale.down(source(row_at(i), column_at_[j]));
    });
    // Clears the padding in a column's last pack, which sums include.
    const int end = SvdLayout<T>::packed(m_);
    for (int j = team_.thread(); j < n_; j += team_.size())
      for (int i = m_; i < end; ++i) q_.column(j)[i] = 0;
    team_.sync();
    return true;
  }

  /// Copies R^T, with I below it, to where it is rotated. The columns then hold only the reflectors.
  KEEL_HOST_DEVICE void extract() {
    q_.for_each_entry(layout_.half, n_, false, [&](int i, int j) {
      T* const to = rotated_.column(j);
      to[i] = i < j || i >= n_ ? T(0) : i == j ? q_.diagonal(j) : q_.column(i)[j];
      to[layout_.half + i] = T(i == j);
    });
    team_.sync();
    q_.complete(n_);
  }

  /// U = Q J.
  KEEL_HOST_DEVICE void form_left() {
    const int packs = Work::packs_of(m_);
    q_.for_each_column(0, n_, [&](int j, bool exists) {
      T* const u = left_column(exists ? j : 0);
      if (exists && m_ > n_) {
        T* const rotation = rotated_.column(j) + layout_.half;
        for (int c = team_.lane(); c < packs; c += LongTeam::kLanes)
          Work::pack(u, c) = c < half_packs() ? Work::pack(rotation, c) : Pack{};
      }
      q_.apply_back(n_, packs, u, exists);
    });
    team_.sync();
  }

  /// Sorts the values and normalises V. Vectors of zero values complete V to an orthogonal matrix.
  KEEL_HOST_DEVICE void finish_right() {
    q_.sort(n_, rotated_.sizes(), order_);
    bool missing = false;
    for (int j = team_.group(); j < n_; j += team_.groups()) {
      const T size = rotated_.size(j), inverse = size > 0 ? 1 / size : T(0);
      missing = missing || size == 0;
      for (int c = team_.lane(); c < half_packs(); c += LongTeam::kLanes) {
        Pack x = Work::pack(rotated_.column(j), c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) x.at[e] *= inverse;
        Work::pack(rotated_.column(j), c) = x;
      }
    }
    if (team_.any(missing)) complete_right();
  }

  /// The nonzero columns of V, in order, are the first columns of a product of reflections. The others are taken from
  /// the rest of that product.
  KEEL_HOST_DEVICE void complete_right() {
    int known = 0;
    while (known < n_ && rotated_.size(order_[known]) > 0) ++known;
    q_.for_each_entry(layout_.half, known, false,
                      [&](int i, int c) { q_.column(c)[i] = rotated_.column(order_[c])[i]; });
    for (int k = team_.thread(); k < n_; k += team_.size()) q_.noise(k) = 0;
    team_.sync();
    q_.factor(n_, known);
    q_.complete(known);
    q_.for_each_column(known, n_, [&](int c, bool exists) {
      T* const x = rotated_.column(exists ? order_[c] : 0);
      if (exists)
        for (int i = team_.lane(); i < half_packs(); i += LongTeam::kLanes) {
          Pack unit;
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) unit.at[e] = T(i * kPack + e == c);
          Work::pack(x, i) = unit;
        }
      q_.apply_back(known, half_packs(), x, exists);
    });
    team_.sync();
  }

  const LongTeam& team_;
  SvdLayout<T> layout_;
  int m_, n_, exponent_ = 0;
  bool converged_ = true;
  T* left_;
  int left_step_;
  ColumnRotations<T, Team> rotated_;
  Reflections<T, LongTeam> q_;
  T *sign_, *column_size_, *row_size_;
  int *column_at_, *order_, *row_at_;
};

}  // namespace keel::cuda
