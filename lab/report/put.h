#pragma once

#include <cstdio>
#include <string>

namespace keel::lab::report {

/// Writes text and ignores errors, because a log on a full disk must not end a run.
inline void put(std::FILE* out, const std::string& text) noexcept {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace keel::lab::report
