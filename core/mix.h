#pragma once

#include "host_device.h"

namespace keel {

/// A running statistic after a batch's. At shares 0 and 1 it is one of the two, exactly, which
/// old + share * (now - old) is not: next to a large old one the difference loses the new one's digits.
template <typename T>
KEEL_HOST_DEVICE inline T mixed(T share, T old, T now) {
  if (share == 1) return now;  // whatever the old one is, NaN too
  return (1 - share) * old + share * now;
}

}  // namespace keel
