#pragma once

// Singular values of an M x N matrix, N <= M <= 4, entirely in one thread's registers, with all indices known at
// compile time. The method is that of core/cpu/svd_jacobi.h: sort rows and columns by size, A = Q R, and rotate the
// columns of R^T until they are orthogonal, R^T J = V S, so A = (Q J) S V^T.

#include "formulas/rotation.h"
#include "formulas/scale.h"

namespace keel {

template <typename T, int M, int N>
class OneThreadSvd {
  static_assert(N >= 1 && N <= M && M <= 4);

 public:
  /// Decomposes the matrix whose entries are entry(i, j).
  template <typename Entry>
  KEEL_HOST_DEVICE explicit OneThreadSvd(const Entry& entry) : scale_(load(entry)) {
    arrange();
    factor();
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) {
        right_[j][i] = i < j ? T(0) : a_[i][j];
        rotations_[j][i] = T(i == j);
      }
    }
    bool rotated = N > 1;
    for (int sweep = 0; sweep < kMaxSvdSweeps && rotated; ++sweep) rotated = rotate_all();
    converged_ = !rotated;
    bool complete = true;
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      const T square = dot(j, j);
      const bool is_zero = square < kTinySvdSquare<T>;
      const T inverse = is_zero ? T(0) : short_inverse_root(square);
      size_[j] = is_zero ? T(0) : short_root(square);
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) right_[j][i] *= inverse;
      complete = complete && !is_zero;
    }
    if (!complete) complete_right();
    form_left();
  }

  KEEL_HOST_DEVICE bool finite() const { return scale_.finite; }
  KEEL_HOST_DEVICE bool converged() const { return converged_; }

  // Unordered. Zeros if the matrix is not finite.
  KEEL_HOST_DEVICE T value(int j) const { return size_[j]; }             ///< at unit scale
  KEEL_HOST_DEVICE T left(int i, int j) const { return left_[j][i]; }    ///< in row row(i)
  KEEL_HOST_DEVICE T right(int i, int j) const { return right_[j][i]; }  ///< in column column(i)
  KEEL_HOST_DEVICE int row(int i) const { return row_at_[i]; }
  KEEL_HOST_DEVICE int column(int i) const { return column_at_[i]; }
  /// The index of value j in descending order. Equal values keep their order.
  KEEL_HOST_DEVICE int place(int j) const {
    int place = 0;
    KEEL_UNROLL
    for (int k = 0; k < N; ++k) place += size_[k] > size_[j] || (size_[k] == size_[j] && k < j);
    return place;
  }
  /// Whether det(U) det(V) is negative, for M = N. U is a product of reflections, rotations and permutations.
  KEEL_HOST_DEVICE bool is_mirrored() const {
    static_assert(M == N);
    bool negative = odd_;
    KEEL_UNROLL
    for (int k = 0; k < N; ++k) negative = negative != (reflector_scale_[k] != 0);
    return negative != (determinant_of_right() < 0);
  }
  /// Undoes the scaling for a number that scales like the inverse of the matrix.
  KEEL_HOST_DEVICE T inverse_size(T x) const { return scale_.down(x); }
  KEEL_HOST_DEVICE T true_size(T x) const { return scale_.up(x); }

 private:
  KEEL_HOST_DEVICE T determinant_of_right() const {
    const auto& v = right_;
    const auto minor = [&](int a, int b, int p, int q) {
      return v[a][p] * v[b][q] - v[a][q] * v[b][p];
    };
    if constexpr (N == 1) return v[0][0];
    if constexpr (N == 2) return minor(0, 1, 0, 1);
    if constexpr (N == 3)
      return v[2][0] * minor(0, 1, 1, 2) - v[2][1] * minor(0, 1, 0, 2) +
             v[2][2] * minor(0, 1, 0, 1);
    if constexpr (N == 4)  // Laplace expansion by the first two and the last two rows
      return minor(0, 1, 0, 1) * minor(2, 3, 2, 3) - minor(0, 1, 0, 2) * minor(2, 3, 1, 3) +
             minor(0, 1, 0, 3) * minor(2, 3, 1, 2) + minor(0, 1, 1, 2) * minor(2, 3, 0, 3) -
             minor(0, 1, 1, 3) * minor(2, 3, 0, 2) + minor(0, 1, 2, 3) * minor(2, 3, 0, 1);
  }

  template <typename Entry>
  KEEL_HOST_DEVICE T load(const Entry& entry) {
    T size = 0;
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      KEEL_UNROLL
      for (int i = 0; i < M; ++i) {
        a_[j][i] = entry(i, j);
        size = std::fmax(size, UnitScale<T>::magnitude(a_[j][i]));
      }
    }
    return size;
  }

  KEEL_HOST_DEVICE static void swap_if(bool really, T& x, T& y) {
    const T old = x;
    x = really ? y : x;
    y = really ? old : y;
  }
  KEEL_HOST_DEVICE static void swap_if(bool really, int& x, int& y) {
    const int old = x;
    x = really ? y : x;
    y = really ? old : y;
  }

  template <int P, int Q>
  KEEL_HOST_DEVICE void order_rows() {
    const bool wrong = row_size_[Q] > row_size_[P];
    swap_if(wrong, row_size_[P], row_size_[Q]);
    swap_if(wrong, row_at_[P], row_at_[Q]);
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) swap_if(wrong, a_[j][P], a_[j][Q]);
    odd_ = odd_ != wrong;
  }
  template <int P, int Q>
  KEEL_HOST_DEVICE void order_columns() {
    const bool wrong = column_size_[Q] > column_size_[P];
    swap_if(wrong, column_size_[P], column_size_[Q]);
    swap_if(wrong, column_at_[P], column_at_[Q]);
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) swap_if(wrong, a_[P][i], a_[Q][i]);
    odd_ = odd_ != wrong;
  }

  /// Scales to unit size and sorts rows and columns by their largest entries, descending, so that QR meets large
  /// numbers first.
  KEEL_HOST_DEVICE void arrange() {
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      row_size_[i] = 0;
      row_at_[i] = i;
    }
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      column_size_[j] = 0;
      column_at_[j] = j;
      KEEL_UNROLL
      for (int i = 0; i < M; ++i) {
        a_[j][i] = scale_.finite ? scale_.down(a_[j][i]) : T(0);
        const T size = std::abs(a_[j][i]);
        row_size_[i] = std::fmax(row_size_[i], size);
        column_size_[j] = std::fmax(column_size_[j], size);
      }
    }
    if constexpr (M == 2) order_rows<0, 1>();
    if constexpr (M == 3) {
      order_rows<0, 1>();
      order_rows<1, 2>();
      order_rows<0, 1>();
    }
    if constexpr (M == 4) {
      order_rows<0, 1>();
      order_rows<2, 3>();
      order_rows<0, 2>();
      order_rows<1, 3>();
      order_rows<1, 2>();
    }
    if constexpr (N == 2) order_columns<0, 1>();
    if constexpr (N == 3) {
      order_columns<0, 1>();
      order_columns<1, 2>();
      order_columns<0, 1>();
    }
    if constexpr (N == 4) {
      order_columns<0, 1>();
      order_columns<2, 3>();
      order_columns<0, 2>();
      order_columns<1, 3>();
      order_columns<1, 2>();
    }
  }

  /// QR: R on and above the diagonal, reflectors below it without their leading 1.
  KEEL_HOST_DEVICE void factor() {
    KEEL_UNROLL
    for (int k = 0; k < N; ++k) {
      const T alpha = a_[k][k];
      T square = 0;
      KEEL_UNROLL
      for (int i = k + 1; i < M; ++i) square += a_[k][i] * a_[k][i];
      const T whole = alpha * alpha + square;
      T norm = whole > kTinySvdSquare<T> ? short_root(whole) : T(0);
      const bool is_noise = norm <= svd_noise(row_size_[k], column_size_[k]);
      const bool reflect = square > kTinySvdSquare<T> && !is_noise;
      norm = alpha < 0 ? norm : -norm;
      reflector_scale_[k] = reflect ? (norm - alpha) * short_inverse(norm) : T(0);
      const T scale = reflect ? short_inverse(alpha - norm) : T(0);
      a_[k][k] = is_noise ? T(0) : reflect ? norm : alpha;
      KEEL_UNROLL
      for (int i = k + 1; i < M; ++i) a_[k][i] *= scale;
      KEEL_UNROLL
      for (int j = k + 1; j < N; ++j) reflect_one(k, a_[j]);
    }
  }

  KEEL_HOST_DEVICE void reflect_one(int k, T (&x)[M]) const {
    T part = x[k];
    KEEL_UNROLL
    for (int i = k + 1; i < M; ++i) part += a_[k][i] * x[i];
    part *= reflector_scale_[k];
    x[k] -= part;
    KEEL_UNROLL
    for (int i = k + 1; i < M; ++i) x[i] -= part * a_[k][i];
  }

  KEEL_HOST_DEVICE T dot(int p, int q) const {
    T sum = 0;
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) sum += right_[p][i] * right_[q][i];
    return sum;
  }

  KEEL_HOST_DEVICE void clear_if(bool really, int j) {
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) right_[j][i] = really ? T(0) : right_[j][i];
  }

  template <int P, int Q>
  KEEL_HOST_DEVICE bool rotate_pair() {
    const T x = dot(P, P), y = dot(Q, Q), product = dot(P, Q);
    constexpr T kRoot[] = {T(1), T(1), T(1.4142135623730951), T(1.7320508075688772), T(2)};
    constexpr T kTolerance = std::numeric_limits<T>::epsilon() * kRoot[N];
    const bool tiny = x < kTinySvdSquare<T> || y < kTinySvdSquare<T>;
    if (tiny || !must_rotate(product, short_root(x), short_root(y), kTolerance)) return false;
    const ColumnRotation<T> rotation(x, y, product);
    KEEL_UNROLL
    for (int i = 0; i < N; ++i) {
      rotation(right_[P][i], right_[Q][i]);
      rotation(rotations_[P][i], rotations_[Q][i]);
    }
    if (x - rotation.moved < T(0.125) * x) clear_if(dot(P, P) < kSvdNoiseSquare<T> * x, P);
    if (y + rotation.moved < T(0.125) * y) clear_if(dot(Q, Q) < kSvdNoiseSquare<T> * y, Q);
    return true;
  }

  KEEL_HOST_DEVICE bool rotate_all() {
    int any = 0;
    if constexpr (N >= 2) any |= int(rotate_pair<0, 1>());
    if constexpr (N >= 4) any |= int(rotate_pair<2, 3>());
    if constexpr (N >= 3) any |= int(rotate_pair<0, 2>());
    if constexpr (N >= 4) any |= int(rotate_pair<1, 3>()) | int(rotate_pair<0, 3>());
    if constexpr (N >= 3) any |= int(rotate_pair<1, 2>());
    return any != 0;
  }

  /// U = Q J.
  KEEL_HOST_DEVICE void form_left() {
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      KEEL_UNROLL
      for (int i = 0; i < M; ++i) left_[j][i] = i < N ? rotations_[j][i % N] : T(0);
      KEEL_UNROLL
      for (int k = N - 1; k >= 0; --k) reflect_one(k, left_[j]);
    }
  }

  /// Replaces the vector of each zero value by a unit vector orthogonal to the others.
  KEEL_HOST_DEVICE void complete_right() {
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      if (size_[j] > 0) continue;
      // Start along the axis that the others cover least.
      T least = 2;
      int axis = 0;
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) {
        T filled = 0;
        KEEL_UNROLL
        for (int k = 0; k < N; ++k) filled += right_[k][i] * right_[k][i];
        axis = filled < least ? i : axis;
        least = std::fmin(least, filled);
      }
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) right_[j][i] = T(i == axis);
      for (int pass = 0; pass < 3; ++pass) {
        KEEL_UNROLL
        for (int k = 0; k < N; ++k) {
          if (k == j) continue;
          const T along = dot(k, j);
          KEEL_UNROLL
          for (int i = 0; i < N; ++i) right_[j][i] -= along * right_[k][i];
        }
        const T inverse = 1 / std::sqrt(dot(j, j));
        KEEL_UNROLL
        for (int i = 0; i < N; ++i) right_[j][i] *= inverse;
      }
    }
  }

  T a_[N][M];  // by columns, like all arrays below
  UnitScale<T> scale_;
  T right_[N][N], rotations_[N][N], left_[N][M], size_[N], reflector_scale_[N], row_size_[M],
      column_size_[N];
  int row_at_[M], column_at_[N];
  bool converged_ = true, odd_ = false;
};

}  // namespace keel
