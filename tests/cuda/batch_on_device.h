#pragma once

#include "on_device.h"
#include "support/backend.h"

namespace keel::testing {

template <typename T>
using BatchOnDevice = BatchIn<OnDevice, T>;

}  // namespace keel::testing
