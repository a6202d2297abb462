#pragma once

// Householder QR of a slice of rows that fits into the cache, and the product with its Q. A slice is
// stored by columns, which are `stride` apart, aligned, and zero from the end of the slice on.

#include "eigh_scaling.h"
#include "product.h"

namespace keel::cpu::KEEL_ISA {

/// The dot products of column x with `COUNT` columns y, from entry `begin` (a multiple of kLanes) on.
template <typename T, int COUNT>
inline void column_dots(std::int64_t begin, std::int64_t end, const T* x, const T* y,
                        std::int64_t stride, T* dots) {
  constexpr std::int64_t kRun =
      64 * kLanes<T>;  // added up by themselves, for fewer rounding errors
  Vec<T> sum[COUNT] = {};
  for (std::int64_t start = begin; start < end; start += kRun) {
    Vec<T> part[COUNT] = {};
    for (std::int64_t i = start; i < end && i < start + kRun; i += kLanes<T>) {
      const Vec<T> xi = at(x + i);
      for (int c = 0; c < COUNT; ++c) part[c] += xi * at(y + c * stride + i);
    }
    for (int c = 0; c < COUNT; ++c) sum[c] += part[c];
  }
  for (int c = 0; c < COUNT; ++c) dots[c] = sum_lanes<T>(sum[c]);
}

/// The largest magnitude (NaN if a number is not finite), how many rows are zero, and how many have
/// an entry of at least an eighth of the largest.
template <typename T>
void tall_sizes(std::int64_t rows, std::int64_t n, const T* x, std::int64_t stride, T& largest,
                std::int64_t& zero_rows, std::int64_t& large_rows) {
  const std::int64_t end = (rows + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  const auto each_row = [&](const auto& take) {
    for (std::int64_t i = 0; i < end; i += kLanes<T>) {
      Vec<T> size = {};
      for (std::int64_t j = 0; j < n; ++j) {
        const Vec<T> own = magnitude<T>(at(x + j * stride + i));
        size = own <= size ? size : own;  // NaN stays
      }
      take(size);
    }
  };
  Vec<T> most = {}, not_finite = {};
  each_row([&](Vec<T> size) {
    most = size > most ? size : most;
    not_finite += size * T(0);
  });
  largest = sum_lanes<T>(not_finite);
  if (largest != 0) return;
  for (int k = 0; k < kLanes<T>; ++k) largest = most[k] > largest ? most[k] : largest;
  Mask<T> zero = {}, large = {};  // counts, negative
  const T least = largest / 8;
  each_row([&](Vec<T> size) {
    zero += size == 0;
    large += size >= least;
  });
  zero_rows = rows - end;  // the rows after the last
  large_rows = largest == 0 ? rows - end : 0;
  for (int k = 0; k < kLanes<T>; ++k) {
    zero_rows -= zero[k];
    large_rows -= large[k];
  }
}

/// columns y -= tau (v . y) v
template <typename T, int COUNT>
inline void reflect_columns(std::int64_t begin, std::int64_t end, T tau, const T* v, T* y,
                            std::int64_t stride) {
  T factor[COUNT];
  column_dots<T, COUNT>(begin, end, v, y, stride, factor);
  for (int c = 0; c < COUNT; ++c) factor[c] *= tau;
  for (std::int64_t i = begin; i < end; i += kLanes<T>) {
    const Vec<T> vi = at(v + i);
    for (int c = 0; c < COUNT; ++c) {
      T* const entry = y + c * stride + i;
      put<T>(entry, at(entry) - factor[c] * vi);
    }
  }
}

/// x = Q R for n columns of `rows` entries, Q = H_0 H_1 ... Column j of x becomes the vector of H_j =
/// I - tau_j v v^T, with zeros before its entry j, which is 1. R is n x n, by rows. The numbers are at unit
/// size.
template <typename T>
void tall_reduce(std::int64_t rows, std::int64_t n, T* x, std::int64_t stride, T* tau, T* r) {
  const std::int64_t end = (rows + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  for (std::int64_t j = 0; j < n; ++j) {
    T* const v = x + j * stride;
    for (std::int64_t k = 0; k < j; ++k) r[j * n + k] = 0;
    const T alpha = v[j];
    v[j] = 0;
    const std::int64_t begin = j / kLanes<T> * kLanes<T>;
    T square;
    column_dots<T, 1>(begin, end, v, v, stride, &square);
    T beta = alpha;
    tau[j] = 0;
    if (square > kTinySquare<T>) {
      const T norm = square_root<T>(broadcast(alpha * alpha + square))[0];
      beta = alpha < 0 ? norm : -norm;
      tau[j] = (beta - alpha) / beta;
      const T scale = T(1) / (alpha - beta);
      for (std::int64_t i = begin; i < end; i += kLanes<T>) put<T>(v + i, scale * at(v + i));
    }
    v[j] = 1;
    r[j * n + j] = beta;
    std::int64_t k = j + 1;
    if (tau[j] != 0) {
      for (; k + 4 <= n; k += 4)
        reflect_columns<T, 4>(begin, end, tau[j], v, x + k * stride, stride);
      for (; k < n; ++k) reflect_columns<T, 1>(begin, end, tau[j], v, x + k * stride, stride);
    }
    for (k = j + 1; k < n; ++k) {
      r[j * n + k] = x[k * stride + j];
      x[k * stride + j] = 0;
    }
  }
}

/// y = Q [w; 0] for n x n numbers w, by rows. Q = I - V T V^T with a triangular T. `scratch`: 2 n^2.
template <typename T>
void tall_expand(std::int64_t rows, std::int64_t n, const T* v, std::int64_t stride, const T* tau,
                 const T* w, T* y, T* scratch) {
  const std::int64_t end = (rows + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  T *const t = scratch, *const z = scratch + n * n;
  for (std::int64_t j = 0; j < n; ++j) {
    T* const dots = z;  // free so far
    for (std::int64_t i = 0; i < j; ++i)
      column_dots<T, 1>(j / kLanes<T> * kLanes<T>, end, v + j * stride, v + i * stride, stride,
                        dots + i);
    for (std::int64_t i = 0; i < n; ++i) {
      T sum = 0;
      for (std::int64_t k = i; k < j; ++k) sum += t[i * n + k] * dots[k];
      t[i * n + j] = i < j ? -tau[j] * sum : i == j ? tau[j] : T(0);
    }
  }
  // z = -T (V_top^T w), in two steps; V_top is the unit lower triangle.
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < n; ++c) z[i * n + c] = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = i; k < n; ++k) {
      const T factor = v[i * stride + k];
      for (std::int64_t c = 0; c < n; ++c) z[i * n + c] += factor * w[k * n + c];
    }
  for (std::int64_t i = 0; i < n; ++i) {  // row i of T needs the rows of z from i on
    T* const row = z + i * n;
    for (std::int64_t c = 0; c < n; ++c) row[c] *= -t[i * n + i];
    for (std::int64_t k = i + 1; k < n; ++k)
      for (std::int64_t c = 0; c < n; ++c) row[c] -= t[i * n + k] * z[k * n + c];
  }
  const auto columns = [&]<int COUNT>(std::int64_t first) {
    for (std::int64_t i = 0; i < end; i += kLanes<T>) {
      Vec<T> sum[COUNT] = {};
      for (std::int64_t k = 0; k < n; ++k) {
        const Vec<T> x = at(v + k * stride + i);
        for (int c = 0; c < COUNT; ++c) sum[c] += z[k * n + first + c] * x;
      }
      for (int c = 0; c < COUNT; ++c) put<T>(y + (first + c) * stride + i, sum[c]);
    }
    for (int c = 0; c < COUNT; ++c)
      for (std::int64_t k = 0; k < n; ++k) y[(first + c) * stride + k] += w[k * n + first + c];
  };
  std::int64_t first = 0;
  for (; first + 4 <= n; first += 4) columns.template operator()<4>(first);
  for (; first < n; ++first) columns.template operator()<1>(first);
}

}  // namespace keel::cpu::KEEL_ISA
