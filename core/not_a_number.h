#pragma once

#include <limits>

#include "keel/matrices.h"

namespace keel {

/// NaN, of a complex type in both parts.
template <typename E>
constexpr E not_a_number() {
  constexpr auto kNan = std::numeric_limits<RealOf<E>>::quiet_NaN();
  if constexpr (kIsComplex<E>)
    return {kNan, kNan};
  else
    return kNan;
}

}  // namespace keel
