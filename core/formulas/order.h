#pragma once

// The order of eigenvalues and singular values.

#include "host_device.h"
#include "keel/eigh.h"

namespace keel {

/// The position of the i-th largest of n eigenvalues. As one order is the reverse of the other, it
/// is also the index of the eigenvalue at position i.
template <typename Index>
KEEL_HOST_DEVICE constexpr Index place_in(EighOrder order, Index n, Index i) {
  return order == EighOrder::descending ? i : n - 1 - i;
}

/// How many numbers come before number j in descending (or ascending) order; equal ones keep their
/// order. Looks only at every lanes-th number, from number `lane` on: the sum over all lanes is the
/// place of j.
template <bool DESCENDING = true, typename T>
KEEL_HOST_DEVICE int count_before(const T* numbers, int count, int j, T own, int lane, int lanes) {
  int before = 0;
  KEEL_UNROLL_4
  for (int k = lane; k < count; k += lanes)
    before += (DESCENDING ? numbers[k] > own : numbers[k] < own) || (numbers[k] == own && k < j);
  return before;
}

}  // namespace keel
