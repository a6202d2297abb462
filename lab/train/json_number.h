#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace keel::lab {

/// JSON has no NaN and no infinity: they are null.
inline nlohmann::json finite_or_null(double number) {
  return std::isfinite(number) ? nlohmann::json(number) : nlohmann::json();
}

}  // namespace keel::lab
