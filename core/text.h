#pragma once

#include <charconv>
#include <string>

namespace keel {

/// A number as short as it can be written without losing a digit.
template <typename Number>
std::string text(Number number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

}  // namespace keel
