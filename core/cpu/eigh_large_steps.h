#pragma once

// The vector loops of the reduction of a large symmetric matrix, stored row by row up to the end of
// the diagonal block, and of storing its vectors. eigh_large_kernels.h has the contracts.

#include "eigh_scaling.h"
#include "product.h"

namespace keel::cpu::KEEL_ISA {

/// `count` rounded up to whole vectors.
template <typename T>
inline std::int64_t whole(std::int64_t count) {
  return (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

template <typename T>
T largest(std::int64_t count, const T* x) {
  Vec<T> most = {}, zero = {};
  std::int64_t j = 0;
  for (; j + kLanes<T> <= count; j += kLanes<T>) {
    const Vec<T> size = magnitude<T>(at(x + j));
    most = size > most ? size : most;
    zero += size * T(0);  // 0 for finite numbers, NaN for the rest
  }
  T found = 0, not_finite = 0;
  for (int k = 0; k < kLanes<T>; ++k) found = most[k] > found ? most[k] : found;
  for (; j < count; ++j) {
    const T size = x[j] < 0 ? -x[j] : x[j];
    found = size > found ? size : found;
    not_finite += size * T(0);
  }
  return found + not_finite + sum_lanes<T>(zero);
}

template <typename T>
void scale(std::int64_t count, int exponent, const T* from, T* to) {
  const PowerOfTwo<T> factor(exponent);
  for (std::int64_t j = 0; j < count; ++j) to[j] = factor * from[j];
}

template <typename T, int ROWS>
inline void times_rows(std::int64_t i, const T* matrix, std::int64_t stride, const T* x, T* y) {
  const std::int64_t inner = i / kReach * kReach;
  const T* rows = matrix + i * stride;
  Vec<T> sum[ROWS] = {};
  T own[ROWS];
  for (int r = 0; r < ROWS; ++r) own[r] = x[i + r];
  for (std::int64_t j = 0; j < inner; j += kLanes<T>) {
    const Vec<T> xj = at(x + j);
    Vec<T> yj = at(y + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> a = at(rows + r * stride + j);
      sum[r] += a * xj;
      yj += a * own[r];
    }
    put<T>(y + j, yj);
  }
  for (std::int64_t j = inner; j < inner + kReach; j += kLanes<T>) {
    const Vec<T> xj = at(x + j);
    for (int r = 0; r < ROWS; ++r) sum[r] += at(rows + r * stride + j) * xj;
  }
  for (int r = 0; r < ROWS; ++r) y[i + r] += sum_lanes<T>(sum[r]);
}

template <typename T>
void symmetric_times(std::int64_t first, std::int64_t end, const T* matrix, std::int64_t stride,
                     const T* x, T* y) {
  constexpr int kRows = KEEL_VECTOR_BYTES == 64 ? 8 : 4;
  for (std::int64_t j = 0; j < end; ++j) y[j] = 0;
  std::int64_t i = first;
  for (; i + kRows <= end; i += kRows) times_rows<T, kRows>(i, matrix, stride, x, y);
  for (; i < end; ++i) times_rows<T, 1>(i, matrix, stride, x, y);
}

template <typename T, int ROWS>
inline void dot_rows(const T* rows, std::int64_t stride, std::int64_t first, std::int64_t end,
                     const T* x, T* sums) {
  Vec<T> sum[ROWS] = {};
  for (std::int64_t j = first; j < end; j += kLanes<T>) {
    const Vec<T> xj = at(x + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) sum[r] += at(rows + r * stride + j) * xj;
  }
  for (int r = 0; r < ROWS; ++r) sums[r] = sum_lanes<T>(sum[r]);
}

template <typename T>
void dots(std::int64_t count, const T* rows, std::int64_t stride, std::int64_t first,
          std::int64_t end, const T* x, T* sums) {
  std::int64_t r = 0;
  for (; r + 8 <= count; r += 8) dot_rows<T, 8>(rows + r * stride, stride, first, end, x, sums + r);
  for (; r + 2 <= count; r += 2) dot_rows<T, 2>(rows + r * stride, stride, first, end, x, sums + r);
}

template <typename T, int ROWS>
inline void subtract_few_rows(const T* rows, std::int64_t stride, const T* factors,
                              std::int64_t end, T* y) {
  T factor[ROWS];
  for (int r = 0; r < ROWS; ++r) factor[r] = factors[r];
  for (std::int64_t j = 0; j < end; j += kLanes<T>) {
    Vec<T> sum = at(rows + j) * factor[0];
#pragma GCC unroll 8
    for (int r = 1; r < ROWS; ++r) sum += at(rows + r * stride + j) * factor[r];
    put<T>(y + j, at(y + j) - sum);
  }
}

template <typename T>
void subtract_rows(std::int64_t count, const T* rows, std::int64_t stride, const T* factors,
                   std::int64_t end, T* y) {
  end = whole<T>(end);
  std::int64_t r = 0;
  for (; r + 8 <= count; r += 8)
    subtract_few_rows<T, 8>(rows + r * stride, stride, factors + r, end, y);
  for (; r + 2 <= count; r += 2)
    subtract_few_rows<T, 2>(rows + r * stride, stride, factors + r, end, y);
}

template <typename T>
T reflector(std::int64_t k, const T* row, T* v, T& left) {
  const T alpha = row[k - 1];
  for (std::int64_t j = 0; j < k - 1; ++j) v[j] = row[j];
  for (std::int64_t j = k - 1; j < k + kReach; ++j) v[j] = 0;
  Vec<T> squares[2] = {};
  std::int64_t j = 0;
  for (; j + 2 * kLanes<T> <= k; j += 2 * kLanes<T>)
    for (int h = 0; h < 2; ++h) {
      const Vec<T> x = at(v + j + h * kLanes<T>);
      squares[h] += x * x;
    }
  for (; j < k; j += kLanes<T>) squares[0] += at(v + j) * at(v + j);
  const T square = sum_lanes<T>(squares[0] + squares[1]);
  T tau = 0, factor = 0;
  left = alpha;
  if (square > kTinySquare<T>) {
    T norm = square_root<T>(broadcast(alpha * alpha + square))[0];
    norm = alpha < 0 ? norm : -norm;
    factor = T(1) / (alpha - norm);
    left = norm;
    tau = (norm - alpha) / norm;
  }
  for (j = 0; j < k - 1; ++j) v[j] *= factor;
  v[k - 1] = 1;
  return tau;
}

template <typename T>
void add(std::int64_t count, const T* from, T* to) {
  for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
}

template <typename T>
void finish_product(std::int64_t k, T tau, const T* v, T* w) {
  T overlap = 0;
  dot_rows<T, 1>(w, 0, 0, whole<T>(k), v, &overlap);  // v is zero behind k
  const T half = T(0.5) * tau * overlap;
  for (std::int64_t j = 0; j < k; ++j) w[j] = tau * (w[j] - half * v[j]);
}

template <typename T>
T sign(std::int64_t count, const T* x) {
  Vec<T> high = {}, low = {};
  std::int64_t j = 0;
  for (; j + kLanes<T> <= count; j += kLanes<T>) {
    const Vec<T> xj = at(x + j);
    high = xj > high ? xj : high;
    low = xj < low ? xj : low;
  }
  T most = 0, least = 0;
  for (int k = 0; k < kLanes<T>; ++k) {
    most = high[k] > most ? high[k] : most;
    least = low[k] < least ? low[k] : least;
  }
  for (; j < count; ++j) {
    most = x[j] > most ? x[j] : most;
    least = x[j] < least ? x[j] : least;
  }
  if (most != -least) return most > -least ? T(1) : T(-1);
  for (j = 0; j < count; ++j)
    if (x[j] == most || x[j] == least) return x[j] < 0 ? T(-1) : T(1);
  return 1;
}

template <typename T>
void store_columns(std::int64_t n, std::int64_t count, const T* from, std::int64_t from_stride,
                   const T* sign, T* to, std::int64_t to_stride) {
  constexpr std::int64_t kTile = 16;  // columns whose target lines stay in cache together
  for (std::int64_t left = 0; left < count; left += kTile) {
    const std::int64_t right = left + kTile < count ? left + kTile : count;
    for (std::int64_t top = 0; top < n; top += kTile)
      for (std::int64_t j = left; j < right; ++j) {
        const T* x = from + j * from_stride;
        const T s = sign[j];
        for (std::int64_t i = top; i < n && i < top + kTile; ++i)
          to[i * to_stride + j] = s * x[i] + T(0);
      }
  }
}

}  // namespace keel::cpu::KEEL_ISA
