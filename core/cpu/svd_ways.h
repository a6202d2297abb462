#pragma once

// The two ways in which one-sided Jacobi (svd_jacobi.h) holds its numbers: one matrix per SIMD lane, or
// one matrix over all lanes.

#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// Each lane holds the number of its own matrix.
template <typename T>
struct Lanes {
  using Number = Vec<T>;
  using Truth = Mask<T>;
  static constexpr int kMatrices = kLanes<T>;
  static constexpr bool kMayPivot = false;  // each lane would need an order of its own

  static Number number(T x) { return broadcast(x); }
  static Number root(Number x) { return square_root<T>(x); }
  static Number size(Number x) { return magnitude<T>(x); }
  static bool any(Truth mask) { return KEEL_ISA::any<T>(mask); }
  static bool of(Truth mask, int matrix) { return mask[matrix] != 0; }
  static Number dot(std::int64_t count, const Number* x, const Number* y) {
    Number even = {}, odd = {};
    std::int64_t i = 0;
    for (; i + 1 < count; i += 2) {
      even += x[i] * y[i];
      odd += x[i + 1] * y[i + 1];
    }
    if (i < count) even += x[i] * y[i];
    return even + odd;
  }
  /// y += factor x
  static void add(std::int64_t count, Number factor, const Number* x, Number* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
  }
  /// The largest magnitude. `not_finite` becomes NaN if a number is not finite.
  static Number largest(std::int64_t count, const Number* x, Number& not_finite) {
    Number most = {};
    for (std::int64_t i = 0; i < count; ++i) {
      const Number own = size(x[i]);
      most = own > most ? own : most;
      not_finite += x[i] * T(0);
    }
    return most;
  }
  /// The first of the numbers of largest magnitude.
  static Number peak(std::int64_t count, const Number* x) {
    Number found = {}, most = {};
    for (std::int64_t i = 0; i < count; ++i) {
      const Number own = size(x[i]);
      found = own > most ? x[i] : found;
      most = own > most ? own : most;
    }
    return found;
  }
  /// Rotates x and y by the angle with sine s and tau = tan(angle / 2). The new values are the old
  /// ones plus a correction, so small rotations make small rounding errors. Returns the dot product
  /// of the new x and `next` over the first `seen` entries.
  static Number turn(std::int64_t seen, std::int64_t count, Number s, Number tau, Number* x,
                     Number* y, const Number* next) {
    Number even = {}, odd = {};
    const auto one = [&](std::int64_t i) {
      const Number old = x[i], other = y[i];
      y[i] = other + s * (old - tau * other);
      return x[i] = old - s * (other + tau * old);
    };
    std::int64_t i = 0;
    for (; i + 1 < seen; i += 2) {
      even += one(i) * next[i];
      odd += one(i + 1) * next[i + 1];
    }
    if (i < seen) even += one(i) * next[i];
    for (i = seen; i < count; ++i) one(i);
    return even + odd;
  }
};

/// One matrix: scalars are plain numbers, and loops over its columns use all lanes.
template <typename T>
struct Alone {
  using Number = T;
  using Truth = bool;
  static constexpr int kMatrices = 1;
  static constexpr bool kMayPivot = true;

  static T number(T x) { return x; }
  static T root(T x) {
    return sizeof(T) == 4 ? T(__builtin_sqrtf(float(x))) : T(__builtin_sqrt(x));
  }
  static T size(T x) { return x < 0 ? -x : x; }
  static bool any(bool one) { return one; }
  static bool of(bool one, int) { return one; }
  static Vec<T> at(const T* x) {
    Vec<T> loaded;
    __builtin_memcpy(&loaded, x, sizeof(loaded));
    return loaded;
  }
  static void put(Vec<T> x, T* to) { __builtin_memcpy(to, &x, sizeof(x)); }
  /// Long sums are added up from shorter ones, so that rounding errors grow with their root.
  static T dot(std::int64_t count, const T* x, const T* y) {
    const std::int64_t run = summed_at_once(count, 2 * kLanes<T>);
    T sum = 0;
    for (std::int64_t i = 0; i < count; i += run)
      sum += dot_at_once(count - i < run ? count - i : run, x + i, y + i);
    return sum;
  }
  static T dot_at_once(std::int64_t count, const T* x, const T* y) {
    constexpr std::int64_t kWidth = kLanes<T>;
    Vec<T> even = {}, odd = {};
    std::int64_t i = 0;
    for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
      even += at(x + i) * at(y + i);
      odd += at(x + i + kWidth) * at(y + i + kWidth);
    }
    T sum = sum_lanes<T>(even + odd);
    for (; i < count; ++i) sum += x[i] * y[i];
    return sum;
  }
  static void add(std::int64_t count, T factor, const T* x, T* y) {
    constexpr std::int64_t kWidth = kLanes<T>;
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) put(at(y + i) + factor * at(x + i), y + i);
    for (; i < count; ++i) y[i] += factor * x[i];
  }
  static T largest(std::int64_t count, const T* x, T& not_finite) {
    constexpr std::int64_t kWidth = kLanes<T>;
    Vec<T> most = {}, bad = {};
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) {
      const Vec<T> own = magnitude<T>(at(x + i));
      most = own > most ? own : most;
      bad += own * T(0);
    }
    not_finite += sum_lanes<T>(bad);
    T found = 0;
    for (int lane = 0; lane < kWidth; ++lane) found = most[lane] > found ? most[lane] : found;
    for (; i < count; ++i) {
      found = size(x[i]) > found ? size(x[i]) : found;
      not_finite += x[i] * T(0);
    }
    return found;
  }
  static T peak(std::int64_t count, const T* x) {
    T not_finite = 0;
    const T most = largest(count, x, not_finite);
    for (std::int64_t i = 0; i < count; ++i)
      if (size(x[i]) == most) return x[i];
    return 0;
  }
  static T turn(std::int64_t seen, std::int64_t count, T s, T tau, T* x, T* y, const T* next) {
    constexpr std::int64_t kWidth = kLanes<T>;
    const auto some = [&](std::int64_t i) {
      const Vec<T> old = at(x + i), other = at(y + i);
      put(other + s * (old - tau * other), y + i);
      const Vec<T> turned = old - s * (other + tau * old);
      put(turned, x + i);
      return turned;
    };
    const auto one = [&](std::int64_t i) {
      const T old = x[i], other = y[i];
      y[i] = other + s * (old - tau * other);
      return x[i] = old - s * (other + tau * old);
    };
    Vec<T> sums = {};
    std::int64_t i = 0;
    for (; i + kWidth <= seen; i += kWidth) sums += some(i) * at(next + i);
    T sum = sum_lanes<T>(sums);
    for (; i < seen; ++i) sum += one(i) * next[i];
    for (; i + kWidth <= count; i += kWidth) some(i);
    for (; i < count; ++i) one(i);
    return sum;
  }
};

}  // namespace keel::cpu::KEEL_ISA
