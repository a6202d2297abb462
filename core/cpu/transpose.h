#pragma once

#include <utility>

#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// One step of the butterfly: swaps the lanes of `low` whose bit STEP is set with those of `high`
/// whose bit is not.
template <typename T, int STEP, int... LANE>
inline void exchange(Vec<T>& low, Vec<T>& high, std::integer_sequence<int, LANE...>) {
  constexpr int lanes = kLanes<T>;
  const Vec<T> a = low, b = high;
  low = __builtin_shufflevector(a, b, (LANE & STEP ? lanes + LANE - STEP : LANE)...);
  high = __builtin_shufflevector(a, b, (LANE & STEP ? lanes + LANE : LANE + STEP)...);
}

template <typename T, int STEP = 1>
inline void transpose(Vec<T> (&rows)[kLanes<T>]) {
  if constexpr (STEP < kLanes<T>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i)
      if (!(i & STEP))
        exchange<T, STEP>(rows[i], rows[i + STEP], std::make_integer_sequence<int, kLanes<T>>{});
    transpose<T, 2 * STEP>(rows);
  }
}

}  // namespace keel::cpu::KEEL_ISA
