#pragma once

// The vector loops of a merge in divide and conquer. Its scalar part is formulas/secular.h. Poles
// are padded with infinity and weights with zero, up to kReach.

#include "product.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
inline Vec<T> lane_numbers() {
  Vec<T> numbers;
  for (int k = 0; k < kLanes<T>; ++k) numbers[k] = T(k);
  return numbers;
}

/// The sums of z^2 / (pole - x) and their derivatives, up to pole `split` and beyond it, in the
/// order of SecularValue.
template <typename T>
void secular_value(int count, int split, const T* pole, const T* z, T origin, T offset, T* value) {
  const auto ratio = [=](int j) { return at(z + j) / ((at(pole + j) - origin) - offset); };
  Vec<T> left = {}, left_slope = {}, right = {}, right_slope = {};
  int j = 0;
  for (; j + kLanes<T> <= split + 1; j += kLanes<T>) {
    const Vec<T> r = ratio(j);
    left += at(z + j) * r;
    left_slope += r * r;
  }
  if (j <= split) {
    const Vec<T> r = ratio(j), x = at(z + j) * r, slope = r * r, none = {};
    const Mask<T> inside = lane_numbers<T>() <= T(split - j);
    left += inside ? x : none;
    left_slope += inside ? slope : none;
    right += inside ? none : x;
    right_slope += inside ? none : slope;
    j += kLanes<T>;
  }
  for (; j < count; j += kLanes<T>) {
    const Vec<T> r = ratio(j);
    right += at(z + j) * r;
    right_slope += r * r;
  }
  value[0] = sum_lanes<T>(left);
  value[1] = sum_lanes<T>(left_slope);
  value[2] = sum_lanes<T>(right);
  value[3] = sum_lanes<T>(right_slope);
}

/// Loewner's formula, as in secular_weight, for the weights first .. end, one per lane.
template <typename T>
void secular_weights(int first, int end, int count, const T* pole, const T* z, const int* origin,
                     const T* offset, T* refined) {
  for (int j = first; j < end; j += kLanes<T>) {
    const Vec<T> own = at(pole + j);
    Vec<T> product[2] = {broadcast(T(1)), broadcast(T(1))};
    const auto factor = [&](int i, Vec<T>& by) {
      by *= ((pole[origin[i]] - own) + offset[i]) / (pole[i] - own);
    };
    int i = 0;
    const int before = j < count ? j : count;
    for (; i + 2 <= before; i += 2) {
      factor(i, product[0]);
      factor(i + 1, product[1]);
    }
    for (; i < before; ++i) factor(i, product[0]);
    for (; i < count && i < j + kLanes<T>; ++i) {
      Vec<T> gap = pole[i] - own;
      gap[i - j] = 1;
      product[0] *= ((pole[origin[i]] - own) + offset[i]) / gap;
    }
    for (; i + 2 <= count; i += 2) {
      factor(i, product[0]);
      factor(i + 1, product[1]);
    }
    for (; i < count; ++i) factor(i, product[0]);
    const Vec<T> root = square_root<T>(magnitude<T>(product[0] * product[1]));
    for (int k = 0; k < kLanes<T> && j + k < end; ++k)
      refined[j + k] = z[j + k] < 0 ? -root[k] : root[k];
  }
}

template <typename T>
void update_row(int count, const T* pole, const T* refined, T origin, T offset, T* row) {
  Vec<T> squares = {};
  for (int k = 0; k < count; k += kLanes<T>) {
    const Vec<T> x = at(refined + k) / ((at(pole + k) - origin) - offset);
    squares += x * x;
    put<T>(row + k, x);
  }
  const T scale = T(1) / square_root<T>(broadcast(sum_lanes<T>(squares)))[0];
  for (int k = 0; k < count; k += kLanes<T>) put<T>(row + k, at(row + k) * scale);
}

template <typename T>
T update_both(int count, const T* pole, const T* size, const T* refined, T origin, T offset,
              T* left, T* right) {
  // Times the offset, no entry of `right` is above a weight. Those of `left` may all be tiny, and their squares too
  // small for the type.
  const T own = offset < 0 ? -offset : offset;
  Vec<T> of_right = {}, most = broadcast(own);
  for (int k = 0; k < count; k += kLanes<T>) {
    const Vec<T> x = at(refined + k) * (offset / ((at(pole + k) - origin) - offset)),
                 y = at(size + k) * x, reach = magnitude<T>(y);
    of_right += x * x;
    most = reach > most ? reach : most;
    put<T>(left + k, y);
    put<T>(right + k, x);
  }
  T largest = 0;
  for (int k = 0; k < kLanes<T>; ++k) largest = most[k] > largest ? most[k] : largest;
  Vec<T> of_left = {};
  for (int k = 0; k < count; k += kLanes<T>) {
    const Vec<T> y = at(left + k) / largest;
    of_left += y * y;
    put<T>(left + k, y);
  }
  const T joint = offset / largest;
  const T unit = T(1) / square_root<T>(broadcast(joint * joint + sum_lanes<T>(of_left)))[0],
          scale = T(1) / square_root<T>(broadcast(sum_lanes<T>(of_right)))[0];
  for (int k = 0; k < count; k += kLanes<T>) {
    put<T>(left + k, at(left + k) * unit);
    put<T>(right + k, at(right + k) * scale);
  }
  return -unit * joint;
}

template <typename T>
void turn(std::int64_t count, T c, T s, T* x, T* y) {
  for (std::int64_t j = 0; j < count; ++j) {
    const T a = x[j], b = y[j];
    x[j] = c * a + s * b;
    y[j] = c * b - s * a;
  }
}

}  // namespace keel::cpu::KEEL_ISA
