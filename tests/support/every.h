#pragma once

#include <type_traits>
#include <variant>
#include <vector>

namespace keel::testing {

/// Every alternative of a variant with its defaults, and `more`. New rules are tested automatically wherever this is
/// used.
template <typename Variant>
std::vector<Variant> every(std::vector<Variant> more = {}) {
  std::vector<Variant> all = []<typename... A>(std::type_identity<std::variant<A...>>) {
    return std::vector<Variant>{A{}...};
  }(std::type_identity<Variant>());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace keel::testing
