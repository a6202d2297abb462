#pragma once

// A symmetric matrix with n <= 4 in the registers of one thread: cyclic Jacobi with compile-time
// indices.

#include "formulas/quad.h"
#include "formulas/scale.h"

namespace keel {

template <typename T, int N>
class OneThreadEigh {
  static_assert(N >= 1 && N <= 4);

 public:
  /// Solves the matrix with the entries entry(i, j), i >= j.
  template <typename Entry>
  KEEL_HOST_DEVICE explicit OneThreadEigh(const Entry& entry) {
    T size = 0;
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        vector_[i][j] = T(i == j);
        if (j < i) continue;
        const T x = entry(j, i);
        (i == j ? diagonal_[i] : off_[i][j]) = x;
        size = std::fmax(size, UnitScale<T>::magnitude(x));
      }
    }
    const UnitScale<T> scale(size);
    finite_ = scale.finite;
    bool several = false;  // whether the matrix may consist of several parts
    KEEL_UNROLL
    for (int j = 1; j < N; ++j) several = several || off_[0][j] == 0;
    int exponent[4] = {};
    if (finite_ && several)
      scale_parts(exponent);
    else
      for_each([&](T& x) { x = finite_ ? scale.down(x) : T(0); });
    for (int sweep = 0; sweep < kMaxQuadSweeps && !diagonalised(); ++sweep) rotate_all();
    KEEL_UNROLL
    for (int j = 0; j < N; ++j)
      diagonal_[j] = finite_ ? std::ldexp(diagonal_[j], several ? exponent[j] : scale.exponent)
                             : std::numeric_limits<T>::quiet_NaN();
  }

  KEEL_HOST_DEVICE bool finite() const { return finite_; }

  /// Calls value(place, x) and vector(i, place, x) with the results. Places count from the largest
  /// value.
  template <typename Value, typename Vector>
  KEEL_HOST_DEVICE void give(const Value& value, const Vector& vector) const {
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      int place = 0;
      KEEL_UNROLL
      for (int k = 0; k < N; ++k)
        place += diagonal_[k] > diagonal_[j] || (diagonal_[k] == diagonal_[j] && k < j);
      // NaN compares false with everything, so all would get the same place.
      place = finite_ ? place : j;
      T peak = 0;
      KEEL_UNROLL
      for (int i = 0; i < N; ++i)
        if (std::abs(vector_[i][j]) > std::abs(peak)) peak = vector_[i][j];
      value(place, diagonal_[j]);
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) {
        const T x = (peak < 0 ? -vector_[i][j] : vector_[i][j]) + T(0);
        vector(i, place, finite_ ? x : std::numeric_limits<T>::quiet_NaN());
      }
    }
  }

 private:
  template <typename Body>
  KEEL_HOST_DEVICE void for_each(const Body& body) {
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) {
      body(diagonal_[i]);
      KEEL_UNROLL
      for (int j = i + 1; j < N; ++j) body(off_[i][j]);
    }
  }

  KEEL_HOST_DEVICE void scale_parts(int (&exponent)[4]) {
    Quad<T> quad(
        [this](int i, int j) {
          return i >= N || j >= N ? T(0) : i == j ? diagonal_[i % N] : off_[i % N][j % N];
        },
        0);
    quad.scale_parts(exponent);
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) {
      diagonal_[i] = quad.diagonal[i];
      KEEL_UNROLL
      for (int j = i + 1; j < N; ++j) off_[i][j] = quad.off[i][j];
    }
  }

  KEEL_HOST_DEVICE bool diagonalised() const {
    int all = 1;  // & instead of &&: no branches
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) {
      KEEL_UNROLL
      for (int j = i + 1; j < N; ++j)
        all &= int(is_negligible(diagonal_[i], diagonal_[j], off_[i][j]));
    }
    return all != 0;
  }

  template <int P, int Q>
  KEEL_HOST_DEVICE void rotate() {
    const Rotation<T> r = annihilate(diagonal_[P], diagonal_[Q], off_[P][Q]);
    KEEL_UNROLL
    for (int k = 0; k < N; ++k)
      if (k != P && k != Q) r(k < P ? off_[k][P] : off_[P][k], k < Q ? off_[k][Q] : off_[Q][k]);
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) r(vector_[i][P], vector_[i][Q]);
  }

  KEEL_HOST_DEVICE void rotate_all() {
    if constexpr (N == 2) rotate<0, 1>();
    if constexpr (N == 3) {
      rotate<0, 1>();
      rotate<0, 2>();
      rotate<1, 2>();
    }
    if constexpr (N == 4) {  // consecutive rotations are independent and overlap in pairs
      rotate<0, 1>();
      rotate<2, 3>();
      rotate<0, 2>();
      rotate<1, 3>();
      rotate<0, 3>();
      rotate<1, 2>();
    }
  }

  T diagonal_[N], off_[N][N], vector_[N][N];
  bool finite_;
};

}  // namespace keel
