#pragma once

#include "host_device.h"

namespace keel {

/// The running statistic after a batch. With share 0 or 1 the result is exactly one of the two. old
/// + share * (now - old) would not be: next to a large old value the difference loses digits of the
/// new one.
template <typename T>
KEEL_HOST_DEVICE inline T mixed(T share, T old, T now) {
  if (share == 1) return now;  // whatever the old one is, NaN too
  return (1 - share) * old + share * now;
}

}  // namespace keel
