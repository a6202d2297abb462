#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "keel/error.h"

namespace keel::lab {

/// Throws "WHO: expected OPTION to be one of a, b, c, got 'd'".
inline void require_one_of(const std::string& who, const std::string& option,
                           const std::string& given, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), given) != known.end()) return;
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  throw Error(who + ": expected " + option + " to be one of " + list + ", got '" + given + "'");
}

}  // namespace keel::lab
