#pragma once

#include <filesystem>
#include <string>

#include "keel/error.h"

namespace keel::lab {

/// "keel::lab::load: FILE: WHAT".
[[noreturn]] inline void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error("keel::lab::load: " + file.string() + ": " + what);
}

inline void require_of(const std::filesystem::path& file, bool holds, const std::string& what) {
  if (!holds) fail(file, what);
}

}  // namespace keel::lab
