#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace keel::lab::report {

/// The text without what a terminal would obey or be misled by, for names that come from files and folders:
/// control characters other than line ends and tabs, bytes that are no UTF-8, and marks that reverse the order of
/// letters are spelled out, such as \x1b and \u202e.
std::string harmless(const std::string& text);

/// Writes the bytes and ignores errors, because a log on a full disk must not end a run.
inline void put_raw(std::FILE* out, const std::string& bytes) noexcept {
  std::fwrite(bytes.data(), 1, bytes.size(), out);
  std::fflush(out);
}

/// The same with harmless(text). The program prints everything with this.
inline void put(std::FILE* out, const std::string& text) { put_raw(out, harmless(text)); }
template <typename First, typename... Rest>
void put(std::FILE* out, fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  put(out, fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

}  // namespace keel::lab::report
