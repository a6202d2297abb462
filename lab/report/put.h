#pragma once

#include <cstdio>
#include <string>

namespace keel::lab::report {

/// Writes text there, as far as it goes. What people are told ends no run: a log may be on a full disk.
inline void put(std::FILE* out, const std::string& text) noexcept {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace keel::lab::report
