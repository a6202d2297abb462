#pragma once

// keel/polar.h for M x N matrices, N <= M <= 4, in one thread's registers. A wide matrix is its transpose's.

#include "cuda/svd/one_thread.h"
#include "polar_weight.h"

namespace keel::cuda {

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
    T last = infinity, last_but_one = infinity;  // of t: the smallest values are the last ones
    KEEL_UNROLL
    for (int j = 0; j < N; ++j) {
      last_but_one = std::fmin(last_but_one, std::fmax(last, t_[j]));
      last = std::fmin(last, t_[j]);
    }
    return svd_.true_size(kind_ == PolarKind::orthogonal ? last : last + last_but_one);
  }

  /// result(i, j, x) receives the matrix.
  template <typename Result>
  KEEL_HOST_DEVICE void give(const Result& result) const {
    give(u_, result, [](T x) { return x; });
  }

  /// dL_dresult(i, j) to dL_dmatrix(i, j, x). Reads all before it writes.
  template <typename Gradient, typename Result>
  KEEL_HOST_DEVICE void backward(const Gradient& dL_dresult, const Result& dL_dmatrix) const {
    T gv[M][N] = {};
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        const T g = dL_dresult(svd_.row(i), svd_.column(j));
        KEEL_UNROLL
        for (int l = 0; l < N; ++l) gv[i][l] += g * svd_.right(j, l);
      }
    }
    T p[N][N];
    KEEL_UNROLL
    for (int a = 0; a < N; ++a) {
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        T sum = 0;
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) sum += u_[i][a] * gv[i][b];
        p[a][b] = sum;
      }
    }
    T left[M][N];
    if constexpr (M > N) {  // what is orthogonal to U
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        const T weight = polar_weight(t_[b], largest_, M);
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) {
          T beside = gv[i][b];
          KEEL_UNROLL
          for (int a = 0; a < N; ++a) beside -= u_[i][a] * p[a][b];
          left[i][b] = beside * weight;
        }
      }
    } else {
      KEEL_UNROLL
      for (int b = 0; b < N; ++b) {
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) left[i][b] = p[b][b] * T(0);  // not a number where p is not
      }
    }
    KEEL_UNROLL
    for (int a = 0; a < N; ++a) {
      KEEL_UNROLL
      for (int b = a + 1; b < N; ++b) {
        const T core = (p[a][b] - p[b][a]) * polar_weight(t_[a] + t_[b], largest_, M);
        KEEL_UNROLL
        for (int i = 0; i < M; ++i) {
          left[i][b] += u_[i][a] * core;
          left[i][a] -= u_[i][b] * core;
        }
      }
    }
    give(left, dL_dmatrix, [this](T x) { return svd_.inverse_size(x); });
  }

 private:
  /// a V^T
  template <typename Result, typename Size>
  KEEL_HOST_DEVICE void give(const T (&a)[M][N], const Result& result, const Size& sized) const {
    KEEL_UNROLL
    for (int i = 0; i < M; ++i) {
      KEEL_UNROLL
      for (int j = 0; j < N; ++j) {
        T sum = 0;
        KEEL_UNROLL
        for (int l = 0; l < N; ++l) sum += a[i][l] * svd_.right(j, l);
        result(svd_.row(i), svd_.column(j),
               svd_.finite() ? sized(sum) : std::numeric_limits<T>::quiet_NaN());
      }
    }
  }

  OneThreadSvd<T, M, N> svd_;
  PolarKind kind_;
  T u_[M][N], t_[N], largest_;
};

}  // namespace keel::cuda
