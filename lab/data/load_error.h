#pragma once

#include <filesystem>
#include <string>

#include "keel/error.h"
#include "lab/storage/files.h"

namespace keel::lab {

/// "keel::lab::load: FILE: WHAT".
[[noreturn]] inline void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error("keel::lab::load: " + file.string() + ": " + what);
}

/// read_file(), with errors that name the caller.
inline std::string content_of(const std::filesystem::path& file,
                              std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max()) {
  try {
    return read_file(file, most);
  } catch (const Error& error) {
    throw Error(std::string("keel::lab::load: ") + error.what());
  }
}

inline void require_of(const std::filesystem::path& file, bool holds, const std::string& what) {
  if (!holds) fail(file, what);
}

}  // namespace keel::lab
