#pragma once

// keel/polar.h for M x N matrices, N <= M <= 4, in one thread's registers. A wide matrix is handled
// through its transpose.

#include "formulas/polar_weight.h"
#include "formulas/svd_one_thread.h"

namespace keel {

/// U', V and t of an M x N matrix at unit size, and the gradient.
template <typename T, int M, int N>
struct PolarBasis {
  T u[M][N], v[N][N], t[N], largest;

  /// Turns dL_dresult(i, j) into dL_dmatrix(i, j, x). Reads everything before it writes.
  template <typename Gradient, typename Result>
  KEEL_HOST_DEVICE void backward(const Gradient& dL_dresult, const Result& dL_dmatrix) const {
    T gv[M][N] = {};
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        const T g = dL_dresult(i, j);
        KEEL_UNROLL
        for (int l = 0; l < N; ++l) gv[i][l] += g * v[j][l];
      }
    }
    T p[N][N];
    KEEL_UNROLL
    for (int a = 0; a < N; ++a) {
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        T sum = 0;
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) sum += u[i][a] * gv[i][b];
        p[a][b] = sum;
      }
    }
    T left[M][N];
    if constexpr (M > N) {  // the component orthogonal to U
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        const T weight = polar_weight(t[b], largest, N);
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) {
          T beside = gv[i][b];
          KEEL_UNROLL
          for (int a = 0; a < N; ++a) beside -= u[i][a] * p[a][b];
          left[i][b] = beside * weight;
        }
      }
    } else {
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) left[i][b] = p[b][b] * T(0);  // NaN if p is not finite
      }
    }
    KEEL_UNROLL
    for (int a = 0; a < N; ++a) {
      KEEL_UNROLL
      for (int b = a + 1; b < N; ++b) {
        const T core = (p[a][b] - p[b][a]) * polar_weight(t[a] + t[b], largest, N);
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) {
          left[i][b] += u[i][a] * core;
          left[i][a] -= u[i][b] * core;
        }
      }
    }
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        T sum = 0;
        KEEL_UNROLL
        for (int l = 0; l < N; ++l) sum += left[i][l] * v[j][l];
        dL_dmatrix(i, j, sum);
      }
    }
  }
};

/// The same from the polar factor result(i, j), t and V^T = right(l, j), in the shape of the matrix
/// itself, ROWS x COLUMNS.
template <int ROWS, int COLUMNS, typename T, typename Result, typename Right, typename Gradient,
          typename Output>
KEEL_HOST_DEVICE void polar_backward_from(const Result& result, const T* values, const Right& right,
                                          const Gradient& dL_dresult, const Output& dL_dmatrix) {
  constexpr bool kWide = ROWS < COLUMNS;
  constexpr int M = kWide ? COLUMNS : ROWS, N = kWide ? ROWS : COLUMNS;
  PolarBasis<T, M, N> basis;
  T size = 0;
  KEEL_UNROLL
  for (int l = 0; l < N; ++l) size = std::fmax(size, UnitScale<T>::magnitude(values[l]));
  const UnitScale<T> scale(size);
  basis.largest = scale.down(size);
  KEEL_UNROLL
  for (int l = 0; l < N; ++l) {
    basis.t[l] = scale.down(values[l]);
    // The vectors of one side are given. The polar factor times these are the vectors of the other.
    KEEL_UNROLL
    for (int j = 0; j < COLUMNS; ++j) (kWide ? basis.u[j % M][l] : basis.v[j % N][l]) = right(l, j);
    KEEL_UNROLL
    for (int i = 0; i < ROWS; ++i) {
      T sum = 0;
      KEEL_UNROLL
      for (int j = 0; j < COLUMNS; ++j) sum += result(i, j) * right(l, j);
      (kWide ? basis.v[i % N][l] : basis.u[i % M][l]) = sum;
    }
  }
  basis.backward([&](int i, int j) { return kWide ? dL_dresult(j, i) : dL_dresult(i, j); },
                 [&](int i, int j, T x) {
                   dL_dmatrix(kWide ? j : i, kWide ? i : j,
                              scale.finite ? scale.down(x) : std::numeric_limits<T>::quiet_NaN());
                 });
}

template <typename T, int M, int N>
class OneThreadPolar {
 public:
  template <typename Entry>
  KEEL_HOST_DEVICE OneThreadPolar(const Entry& entry, PolarKind kind) : svd_(entry), kind_(kind) {
    bool mirrored = false;
    if constexpr (M == N) mirrored = kind == PolarKind::rotation && svd_.is_mirrored();
    largest_ = 0;
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      const T d = mirrored && svd_.place(j) == N - 1 ? T(-1) : T(1);
      t_[j] = d * svd_.value(j);
      largest_ = std::fmax(largest_, svd_.value(j));
      KEEL_UNROLL
      for (int i = 0; i < M; ++i) u_[i][j] = d * svd_.left(i, j);
    }
  }

  KEEL_HOST_DEVICE T margin() const {
    if (!svd_.finite()) return std::numeric_limits<T>::quiet_NaN();
    const T infinity = std::numeric_limits<T>::infinity();
    T last = infinity, last_but_one = infinity;  // the two smallest entries of t
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      last_but_one = std::fmin(last_but_one, std::fmax(last, t_[j]));
      last = std::fmin(last, t_[j]);
    }
    return svd_.true_size(kind_ == PolarKind::orthogonal ? last : last + last_but_one);
  }

  /// Calls result(i, j, x) for every entry of the polar factor.
  template <typename Result>
  KEEL_HOST_DEVICE void give(const Result& result) const {
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        T sum = 0;
        KEEL_UNROLL
        for (int l = 0; l < N; ++l) sum += u_[i][l] * svd_.right(j, l);
        result(svd_.row(i), svd_.column(j),
               svd_.finite() ? sum : std::numeric_limits<T>::quiet_NaN());
      }
    }
  }

  /// Calls value(place, x) with t, and vector(place, i, x) with V^T or, OF_TRANSPOSE, with U'^T,
  /// the V^T of the transpose.
  template <bool OF_TRANSPOSE, typename Value, typename Vector>
  KEEL_HOST_DEVICE void give_factors(const Value& value, const Vector& vector) const {
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      const int place = svd_.finite() ? svd_.place(j) : j;
      value(place, svd_.finite() ? svd_.true_size(t_[j]) : kNaN);
      KEEL_UNROLL
      for (int i = 0; i < (OF_TRANSPOSE ? M : N); ++i)
        if constexpr (OF_TRANSPOSE)
          vector(place, svd_.row(i), svd_.finite() ? u_[i][j] : kNaN);
        else
          vector(place, svd_.column(i), svd_.finite() ? svd_.right(i, j) : kNaN);
    }
  }

  /// Turns dL_dresult(i, j) into dL_dmatrix(i, j, x). Reads everything before it writes.
  template <typename Gradient, typename Result>
  KEEL_HOST_DEVICE void backward(const Gradient& dL_dresult, const Result& dL_dmatrix) const {
    PolarBasis<T, M, N> basis;
    basis.largest = largest_;
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      basis.t[j] = t_[j];
      KEEL_UNROLL
      for (int i = 0; i < M; ++i) basis.u[i][j] = u_[i][j];
      KEEL_UNROLL
      for (int i = 0; i < N; ++i) basis.v[i][j] = svd_.right(i, j);
    }
    basis.backward(
        [&](int i, int j) { return dL_dresult(svd_.row(i), svd_.column(j)); },
        [&](int i, int j, T x) {
          dL_dmatrix(svd_.row(i), svd_.column(j),
                     svd_.finite() ? svd_.inverse_size(x) : std::numeric_limits<T>::quiet_NaN());
        });
  }

 private:
  OneThreadSvd<T, M, N> svd_;
  PolarKind kind_;
  T u_[M][N], t_[N], largest_;
};

}  // namespace keel
