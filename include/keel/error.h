#pragma once

#include <stdexcept>
#include <string>

namespace keel {

/// Thrown when an argument breaks a contract. The message names the operation, what was expected
/// and what it got.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

inline void require(bool holds, const std::string& message) {
  if (!holds) throw Error(message);
}

}  // namespace keel
