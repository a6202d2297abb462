#pragma once

#include "keel/activations.h"

namespace keel::reference {

/// Reads an element through its gate, if there is one.
inline double read(const Activations<const double>& x, std::int64_t sample, std::int64_t channel) {
  const std::int64_t at = x.index(sample, channel);
  return x.gate != nullptr && x.gate[at] <= 0 ? 0 : x.data[at];
}

}  // namespace keel::reference
