#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/require.h"

namespace keel::lab {

/// Throws "expected OPTION to be one of a, b, c, got 'd'".
inline void require_one_of(const std::string& option, const std::string& given,
                           const std::vector<std::string>& known) {
  require(std::ranges::find(known, given) != known.end(), "expected {} to be one of {}, got '{}'",
          option, fmt::join(known, ", "), given);
}

}  // namespace keel::lab
