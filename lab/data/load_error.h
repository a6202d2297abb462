#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "lab/require.h"
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

template <typename... Args>
void require_of(const std::filesystem::path& file, bool holds, fmt::format_string<Args...> what,
                Args&&... args) {
  if (!holds) fail(file, fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace keel::lab
