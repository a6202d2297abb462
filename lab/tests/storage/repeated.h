#pragma once

#include <cstddef>
#include <string>

namespace keel::lab::testing {

inline std::string repeated(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace keel::lab::testing
