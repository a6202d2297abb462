#pragma once

// The vector loops of singular values without vectors (svd_values.cpp). eigh_large_kernels.h has the contracts.

#include "eigh_large_steps.h"

namespace keel::cpu::KEEL_ISA {

template <typename T, int ROWS>
inline void both_products_of_rows(std::int64_t end, const T* lines, std::int64_t stride, const T* u,
                                  T tau, T* y, T* z, T* w) {
  T sums[ROWS];
  dot_rows<T, ROWS>(lines, stride, 0, end, u, sums);
  for (int r = 0; r < ROWS; ++r) {
    y[r] = tau * (y[r] + sums[r]);
    z[r] -= y[r];
  }
  for (std::int64_t i = 0; i < end; i += kLanes<T>) {
    Vec<T> sum = at(w + i);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) sum += at(lines + r * stride + i) * z[r];
    put<T>(w + i, sum);
  }
}

template <typename T>
void both_products(std::int64_t count, std::int64_t end, const T* lines, std::int64_t stride,
                   const T* u, T tau, T* y, T* z, T* w) {
  constexpr int kRows = KEEL_VECTOR_BYTES == 64 ? 8 : 4;
  for (std::int64_t i = 0; i < end; ++i) w[i] = 0;
  std::int64_t j = 0;
  for (; j + kRows <= count; j += kRows)
    both_products_of_rows<T, kRows>(end, lines + j * stride, stride, u, tau, y + j, z + j, w);
  for (; j < count; ++j)
    both_products_of_rows<T, 1>(end, lines + j * stride, stride, u, tau, y + j, z + j, w);
}

/// Vectors of singular values that are bisected together: a division takes longer than all else of a step, so several
/// wait at the same time.
template <typename T, int VECTORS>
class Bisection {
  using V = Vec<T>;
  using M = Mask<T>;

 public:
  Bisection(std::int64_t n, const T* d_square, const T* e_square, const int* place)
      : n_(n), d_square_(d_square), e_square_(e_square) {
    for (int v = 0; v < VECTORS; ++v)
      for (int k = 0; k < kLanes<T>; ++k)
        place_[v][k] = typename IntegerOf<T>::type(place[v * kLanes<T> + k]);
  }

  /// Replaces guesses, none of them above `most`.
  void run(T most, T tolerance, T* values) const {
    V low[VECTORS], high[VECTORS], x[VECTORS], reach[VECTORS];
    M above[VECTORS];
    const auto some = [&](const auto& test) {
      M found = {};
      for (int v = 0; v < VECTORS; ++v) found |= test(v);
      return any<T>(found);
    };
    // Guesses are seldom far off, so the bounds start close to them.
    for (int v = 0; v < VECTORS; ++v) {
      const V guess = at(values + v * kLanes<T>);
      low[v] = high[v] = guess;
      reach[v] = broadcast(32 * tolerance);
    }
    do {
      for (int v = 0; v < VECTORS; ++v) {
        const V guess = at(values + v * kLanes<T>), next = guess - reach[v];
        x[v] = next > 0 ? next : V{};
      }
      find(x, above);
      for (int v = 0; v < VECTORS; ++v) {
        low[v] = x[v];
        high[v] = above[v] ? high[v] : x[v];
        reach[v] = above[v] ? reach[v] : 16 * reach[v];
      }
    } while (some([&](int v) { return ~above[v]; }));
    for (int v = 0; v < VECTORS; ++v) reach[v] = broadcast(32 * tolerance);
    do {
      for (int v = 0; v < VECTORS; ++v) {
        const V guess = at(values + v * kLanes<T>), next = guess + reach[v];
        // An upper bound below the guess is known already.
        x[v] = high[v] < guess ? high[v] : next < most ? next : broadcast(most);
      }
      find(x, above);
      for (int v = 0; v < VECTORS; ++v) {
        above[v] &= x[v] < most;
        low[v] = above[v] ? x[v] : low[v];
        high[v] = x[v];
        reach[v] = above[v] ? 16 * reach[v] : reach[v];
      }
    } while (some([&](int v) { return above[v]; }));
    while (some([&](int v) { return high[v] - low[v] > tolerance + kEpsilon<T> * high[v]; })) {
      for (int v = 0; v < VECTORS; ++v) x[v] = T(0.5) * (low[v] + high[v]);
      find(x, above);
      for (int v = 0; v < VECTORS; ++v) {
        low[v] = above[v] ? x[v] : low[v];
        high[v] = above[v] ? high[v] : x[v];
      }
    }
    for (int v = 0; v < VECTORS; ++v) put<T>(values + v * kLanes<T>, T(0.5) * (low[v] + high[v]));
  }

 private:
  /// Whether the values are x or above it. A value below x gives a negative pivot.
  void find(const V* x, M* above) const {
    constexpr T kLeast = sizeof(T) == 4 ? T(1e-30) : T(1e-280);
    V shift[VECTORS], d[VECTORS];
    M below[VECTORS] = {};
    for (int v = 0; v < VECTORS; ++v) {
      shift[v] = x[v] * x[v];
      d[v] = d_square_[0] - shift[v];
    }
    for (std::int64_t i = 0; i + 1 < n_; ++i) {
      const T e = e_square_[i], next = d_square_[i + 1];
#pragma GCC unroll 16
      for (int v = 0; v < VECTORS; ++v) {
        V pivot = d[v] + e;
        below[v] += pivot < 0;  // by -1 where that is true
        pivot = magnitude<T>(pivot) < kLeast ? broadcast(-kLeast) : pivot;
        d[v] = next * (d[v] / pivot) - shift[v];
      }
    }
    for (int v = 0; v < VECTORS; ++v) {
      below[v] += d[v] < 0;
      above[v] = typename IntegerOf<T>::type(n_) + below[v] > place_[v];
    }
  }

  std::int64_t n_;
  const T *d_square_, *e_square_;
  M place_[VECTORS];
};

template <typename T>
void bisect(std::int64_t n, const T* d_square, const T* e_square, std::int64_t count,
            const int* place, T most, T tolerance, T* values) {
  constexpr int kVectors = int(kBisected) / kLanes<T>, kFew = (kVectors + 3) / 4;
  if (count <= kFew * kLanes<T>)
    Bisection<T, kFew>(n, d_square, e_square, place).run(most, tolerance, values);
  else
    Bisection<T, kVectors>(n, d_square, e_square, place).run(most, tolerance, values);
}

}  // namespace keel::cpu::KEEL_ISA
