#pragma once

// The order in which QR takes the rows and columns of a steep matrix (core/formulas/polish_reach.h).

#include "keel/svd.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// The exponent of a number that is not negative, as stored.
template <typename T>
inline int stored_exponent(T x) {
  typename IntegerOf<T>::type bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return int(bits >> (sizeof(T) == 4 ? 23 : 52));
}

/// Writes the indices of `count` sizes, none above `largest`, in descending order: up to kFew of them
/// exactly, more by powers of two, which is enough for QR and takes `count` steps. Equal ones keep
/// their order.
template <typename T, typename Index>
inline void order_by_size(std::int64_t count, const T* sizes, T largest, Index* places) {
  constexpr std::int64_t kFew = 16;
  if (count <= kFew) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t place = i;
      for (; place > 0 && sizes[places[place - 1]] < sizes[i]; --place)
        places[place] = places[place - 1];
      places[place] = Index(i);
    }
    return;
  }
  constexpr int kSteps = sizeof(T) == 4 ? 64 : 512;  // smaller sizes come last, in any order
  const int top = stored_exponent(largest);
  const auto step_of = [&](T size) {
    const int step = top - stored_exponent(size);
    return step < kSteps ? step : kSteps - 1;
  };
  Index next[kSteps + 1] = {};
  for (std::int64_t i = 0; i < count; ++i) ++next[step_of(sizes[i]) + 1];
  for (int step = 0; step < kSteps; ++step) next[step + 1] += next[step];
  for (std::int64_t i = 0; i < count; ++i) places[next[step_of(sizes[i])]++] = Index(i);
}

/// Orders rows and columns of a finite matrix by their largest entries, so that QR meets large
/// numbers first. Returns by_fallback if the sizes are so far apart that squares underflow in this
/// type. `sizes`: those of m rows and n columns.
template <typename T, typename Index>
inline SvdStatus arrange(std::int64_t m, std::int64_t n, const T* sizes, Index* row_at,
                         Index* column_at) {
  const T *const of_row = sizes, *const of_column = sizes + m;
  T largest = 0;
  for (std::int64_t j = 0; j < n; ++j) largest = of_column[j] > largest ? of_column[j] : largest;
  const auto least = [](std::int64_t count, const T* own) {  // zero only if all are
    T found = 0;
    for (std::int64_t i = 0; i < count; ++i)
      found = own[i] > 0 && (found == 0 || own[i] < found) ? own[i] : found;
    return found;
  };
  const T least_row = least(m, of_row), least_column = least(n, of_column);
  order_by_size(m, of_row, largest, row_at);
  order_by_size(n, of_column, largest, column_at);
  constexpr T kSteepest = sizeof(T) == 4 ? T(0x1p-36) : T(0x1p-400);
  return largest > 0 && least_row / largest * (least_column / largest) < kSteepest
             ? SvdStatus::by_fallback
             : SvdStatus::converged;
}

}  // namespace keel::cpu::KEEL_ISA
