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

/// Row i holds a_j + i b_j, which is entry (j, i) of the matrix, and its conjugate entry (i, j).
template <typename T, int ROWS>
inline void times_complex_rows(std::int64_t i, const T* matrix, std::int64_t plane,
                               std::int64_t stride, const T* x, T* y) {
  const std::int64_t inner = i / kReach * kReach;
  const T* rows = matrix + i * stride;
  Vec<T> sum[2][ROWS] = {};
  T own[2][ROWS];
  for (int r = 0; r < ROWS; ++r) own[0][r] = x[i + r], own[1][r] = x[stride + i + r];
  for (std::int64_t j = 0; j < inner; j += kLanes<T>) {
    const Vec<T> re = at(x + j), im = at(x + stride + j);
    Vec<T> y_re = at(y + j), y_im = at(y + stride + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> a = at(rows + r * stride + j), b = at(rows + plane + r * stride + j);
      sum[0][r] += a * re;
      sum[0][r] += b * im;
      sum[1][r] += a * im;
      sum[1][r] -= b * re;
      y_re += a * own[0][r];
      y_re -= b * own[1][r];
      y_im += a * own[1][r];
      y_im += b * own[0][r];
    }
    put<T>(y + j, y_re);
    put<T>(y + stride + j, y_im);
  }
  for (std::int64_t j = inner; j < inner + kReach; j += kLanes<T>) {
    const Vec<T> re = at(x + j), im = at(x + stride + j);
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> a = at(rows + r * stride + j), b = at(rows + plane + r * stride + j);
      sum[0][r] += a * re + b * im;
      sum[1][r] += a * im - b * re;
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    y[i + r] += sum_lanes<T>(sum[0][r]);
    y[stride + i + r] += sum_lanes<T>(sum[1][r]);
  }
}

template <typename T>
void hermitian_times(std::int64_t first, std::int64_t end, const T* matrix, std::int64_t plane,
                     std::int64_t stride, const T* x, T* y) {
  constexpr int kRows = KEEL_VECTOR_BYTES == 64 ? 4 : 2;
  for (std::int64_t j = 0; j < end; ++j) y[j] = y[stride + j] = 0;
  std::int64_t i = first;
  for (; i + kRows <= end; i += kRows) times_complex_rows<T, kRows>(i, matrix, plane, stride, x, y);
  for (; i < end; ++i) times_complex_rows<T, 1>(i, matrix, plane, stride, x, y);
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

/// v = the first k - 1 entries of the row, with zeros up to kReach. Returns the squared length.
template <typename T>
T start_reflector(std::int64_t k, const T* row, T* v) {
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
  return sum_lanes<T>(squares[0] + squares[1]);
}

template <typename T>
T reflector(std::int64_t k, const T* row, T* v, T& left) {
  const T alpha = row[k - 1], square = start_reflector(k, row, v);
  T tau = 0, factor = 0;
  left = alpha;
  if (square > kTinySquare<T>) {
    T norm = square_root<T>(broadcast(alpha * alpha + square))[0];
    norm = alpha < 0 ? norm : -norm;
    factor = T(1) / (alpha - norm);
    left = norm;
    tau = (norm - alpha) / norm;
  }
  for (std::int64_t j = 0; j < k - 1; ++j) v[j] *= factor;
  v[k - 1] = 1;
  return tau;
}

template <typename T>
T complex_reflector(std::int64_t k, const T* row, std::int64_t plane, std::int64_t stride, T* v,
                    T& left, T* phase) {
  T* const w = v + stride;
  const T square = start_reflector(k, row, v) + start_reflector(k, row + plane, w);
  const T x = row[k - 1], y = row[plane + k - 1];
  const bool turns = x * x + y * y > kTinySquare<T>;
  // An entry that is too small for a phase counts as zero, also in the norm.
  const T alpha_square = turns ? x * x + y * y : T(0);
  const T size = square_root<T>(broadcast(alpha_square))[0];
  phase[0] = turns ? x / size : T(1);
  phase[1] = turns ? y / size : T(0);
  left = size;
  T tau = 0, re = 0, im = 0;
  if (square > kTinySquare<T>) {
    const T norm = square_root<T>(broadcast(alpha_square + square))[0], sum = size + norm;
    left = -norm;
    tau = sum / norm;
    re = phase[0] / sum;
    im = -phase[1] / sum;
  }
  for (std::int64_t j = 0; j < k - 1; ++j) {
    const T a = v[j], b = w[j];
    v[j] = a * re - b * im;
    w[j] = a * im + b * re;
  }
  v[k - 1] = 1;
  return tau;
}

template <typename T>
void add(std::int64_t count, const T* from, T* to) {
  for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
}

template <typename T>
void finish_product(std::int64_t k, T tau, std::int64_t parts, std::int64_t stride, const T* v,
                    T* w) {
  T overlap = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    T of_part = 0;
    dot_rows<T, 1>(w + part * stride, 0, 0, whole<T>(k), v + part * stride,
                   &of_part);  // v is zero behind k
    overlap += of_part;
  }
  const T half = T(0.5) * tau * overlap;
  for (std::int64_t part = 0; part < parts; ++part)
    for (std::int64_t j = 0; j < k; ++j) {
      T& x = w[part * stride + j];
      x = tau * (x - half * v[part * stride + j]);
    }
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

/// Multiplies a complex row by the phase that makes its entry of largest magnitude real and positive.
template <typename T>
inline void fix_phase(std::int64_t n, T* re, T* im) {
  Vec<T> most = {};
  std::int64_t j = 0;
  for (; j + kLanes<T> <= n; j += kLanes<T>) {
    const Vec<T> x = at(re + j), y = at(im + j), size = x * x + y * y;
    most = size > most ? size : most;
  }
  T largest = 0;
  for (int k = 0; k < kLanes<T>; ++k) largest = most[k] > largest ? most[k] : largest;
  // A number is compared with the same vector operation that gave it, which may round differently
  // from the scalar one.
  for (; j < n; ++j) {
    const Vec<T> x = broadcast(re[j]), y = broadcast(im[j]), size = x * x + y * y;
    largest = size[0] > largest ? size[0] : largest;
  }
  std::int64_t place = 0;
  for (; place + 1 < n; ++place) {
    const Vec<T> x = broadcast(re[place]), y = broadcast(im[place]), size = x * x + y * y;
    if (size[0] >= largest) break;
  }
  const T size = square_root<T>(broadcast(largest))[0], c = re[place] / size, d = -im[place] / size;
  for (j = 0; j < n; ++j) {
    const T x = re[j], y = im[j];
    re[j] = x * c - y * d;
    im[j] = x * d + y * c;
  }
  re[place] = size;
  im[place] = 0;
}

template <typename T>
void store_complex_columns(std::int64_t n, std::int64_t count, T* from, std::int64_t plane,
                           std::int64_t from_stride, T* to, std::int64_t to_stride) {
  constexpr std::int64_t kTile = 16;  // as above
  for (std::int64_t j = 0; j < count; ++j)
    fix_phase(n, from + j * from_stride, from + j * from_stride + plane);
  for (std::int64_t left = 0; left < count; left += kTile) {
    const std::int64_t right = left + kTile < count ? left + kTile : count;
    for (std::int64_t top = 0; top < n; top += kTile)
      for (std::int64_t j = left; j < right; ++j) {
        const T* x = from + j * from_stride;
        for (std::int64_t i = top; i < n && i < top + kTile; ++i) {
          to[2 * (i * to_stride + j)] = x[i] + T(0);
          to[2 * (i * to_stride + j) + 1] = T(0) - x[plane + i];
        }
      }
  }
}

}  // namespace keel::cpu::KEEL_ISA
