#pragma once

#include <cstdint>

#include "host_device.h"
#include "keel/eigh.h"

namespace keel {

/// Where the i-th largest of n eigenvalues goes; and, as one order is the other backwards, which one comes i-th.
template <typename Index>
KEEL_HOST_DEVICE constexpr Index place_in(EighOrder order, Index n, Index i) {
  return order == EighOrder::descending ? i : n - 1 - i;
}

}  // namespace keel
