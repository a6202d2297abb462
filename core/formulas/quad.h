#pragma once

// 4 x 4 matrices, the leaves of divide and conquer and the solver for small matrices: cyclic Jacobi
// in registers, two rotations at a time.

#include "formulas/rotation.h"

namespace keel {

inline constexpr int kMaxQuadSweeps = 12;

/// A symmetric 4 x 4 matrix of at most unit size that is being diagonalised, and one row of the
/// accumulated rotations. To get all four rows, keep four of these: they perform the same
/// rotations.
template <typename T>
struct Quad {
  T diagonal[4];
  T off[4][4];  ///< above the diagonal
  T row[4];

  /// entry(i, j), i <= j, is the matrix. `which` is the row of the rotations to keep.
  template <typename Entry>
  KEEL_HOST_DEVICE Quad(const Entry& entry, int which) {
    KEEL_UNROLL_4
    for (int i = 0; i < 4; ++i) {
      diagonal[i] = entry(i, i);
      row[i] = i == which ? T(1) : T(0);
      KEEL_UNROLL_4
      for (int j = i + 1; j < 4; ++j) off[i][j] = entry(i, j);
    }
  }

  KEEL_HOST_DEVICE bool negligible(int p, int q) const {
    return is_negligible(diagonal[p], diagonal[q], off[p][q]);
  }
  KEEL_HOST_DEVICE bool diagonalised() const {
    // & instead of &&: no branches.
    const auto small = [this](int p, int q) { return int(negligible(p, q)); };
    return small(0, 1) & small(0, 2) & small(0, 3) & small(1, 2) & small(1, 3) & small(2, 3);
  }

  /// Calls body(x) for each entry on and above the diagonal.
  template <typename Body>
  KEEL_HOST_DEVICE void for_each(const Body& body) {
    KEEL_UNROLL_4
    for (int i = 0; i < 4; ++i) {
      body(diagonal[i]);
      KEEL_UNROLL_4
      for (int j = i + 1; j < 4; ++j) body(off[i][j]);
    }
  }
  /// Selects an entry at run time. Indexing would move the array from registers to memory.
  template <typename Number>
  KEEL_HOST_DEVICE static Number chosen(const Number (&all)[4], int i) {
    return i < 2 ? (i == 0 ? all[0] : all[1]) : (i == 2 ? all[2] : all[3]);
  }
  KEEL_HOST_DEVICE T value(int i) const { return chosen(diagonal, i); }
  KEEL_HOST_DEVICE T row_entry(int i) const { return chosen(row, i); }

  /// Whether the first of n rows has all others as neighbours. Then the matrix has only one part.
  KEEL_HOST_DEVICE bool first_holds_together(int n) const {
    return (n < 2 || off[0][1] != 0) && (n < 3 || off[0][2] != 0) && (n < 4 || off[0][3] != 0);
  }

  /// Scales each part (a block without nonzero entries to other rows) to its own unit size: row i
  /// by 2^-exponent[i]. Rotations leave each value at a row of its part.
  KEEL_HOST_DEVICE void scale_parts(int (&exponent)[4]) {
    int part[4] = {0, 1, 2, 3};
    for (int step = 0; step < 3; ++step) {  // the longest path between four rows
      KEEL_UNROLL_4
      for (int i = 0; i < 4; ++i) {
        KEEL_UNROLL_4
        for (int j = i + 1; j < 4; ++j)
          if (off[i][j] != 0) part[i] = part[j] = part[i] < part[j] ? part[i] : part[j];
      }
    }
    KEEL_UNROLL_4
    for (int i = 0; i < 4; ++i) {
      T size = 0;
      KEEL_UNROLL_4
      for (int k = 0; k < 4; ++k) {
        if (part[k] != part[i]) continue;
        size = std::fmax(size, std::abs(diagonal[k]));
        KEEL_UNROLL_4
        for (int j = k + 1; j < 4; ++j) size = std::fmax(size, std::abs(off[k][j]));
      }
      std::frexp(size, &exponent[i]);
    }
    KEEL_UNROLL_4
    for (int i = 0; i < 4; ++i) {
      diagonal[i] = std::ldexp(diagonal[i], -exponent[i]);
      KEEL_UNROLL_4
      for (int j = i + 1; j < 4; ++j) off[i][j] = std::ldexp(off[i][j], -exponent[i]);
    }
  }

  /// Rotates (p, q) and (u, v), with p < q, u < v and p < u; these are all four indices.
  template <int p, int q, int u, int v>
  KEEL_HOST_DEVICE void rotate_pairs() {
    const Rotation<T> first = annihilate(diagonal[p], diagonal[q], off[p][q]),
                      second = annihilate(diagonal[u], diagonal[v], off[u][v]);
    T& pu = off[p][u];
    T& pv = off[p][v];
    T& qu = q < u ? off[q][u] : off[u][q];
    T& qv = q < v ? off[q][v] : off[v][q];
    first(pu, qu);
    first(pv, qv);
    second(pu, pv);
    second(qu, qv);
    first(row[p], row[q]);
    second(row[u], row[v]);
  }

  KEEL_HOST_DEVICE void solve() {
    for (int sweep = 0; sweep < kMaxQuadSweeps && !diagonalised(); ++sweep) {
      rotate_pairs<0, 1, 2, 3>();
      rotate_pairs<0, 2, 1, 3>();
      rotate_pairs<0, 3, 1, 2>();
    }
  }
};

}  // namespace keel
