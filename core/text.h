#pragma once

#include <charconv>
#include <string>

namespace keel {

/// The shortest text that reads back as the same number.
template <typename Number>
std::string text(Number number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

}  // namespace keel
