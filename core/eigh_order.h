#pragma once

#include "host_device.h"
#include "keel/eigh.h"

namespace keel {

/// The position of the i-th largest of n eigenvalues. As one order is the reverse of the other, it
/// is also the index of the eigenvalue at position i.
template <typename Index>
KEEL_HOST_DEVICE constexpr Index place_in(EighOrder order, Index n, Index i) {
  return order == EighOrder::descending ? i : n - 1 - i;
}

}  // namespace keel
