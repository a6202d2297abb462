#pragma once

// Checks with messages for people, and the numbers in them.

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/error.h"

namespace keel {

/// require() with a message in fmt's format, which is put together only if the check fails.
template <typename First, typename... Rest>
void require(bool holds, fmt::format_string<First, Rest...> message, First&& first,
             Rest&&... rest) {
  if (!holds)
    throw Error(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}

namespace lab {

/// Throws keel::Error, "FILE: WHAT", unless it holds.
template <typename... Args>
void require_of(const std::filesystem::path& file, bool holds, fmt::format_string<Args...> what,
                Args&&... args) {
  if (!holds) throw Error(file.string() + ": " + fmt::format(what, std::forward<Args>(args)...));
}

/// Throws "expected OPTION to be one of a, b, c, got 'd'".
inline void require_one_of(const std::string& option, const std::string& given,
                           const std::vector<std::string>& known) {
  require(std::ranges::find(known, given) != known.end(), "expected {} to be one of {}, got '{}'",
          option, fmt::join(known, ", "), given);
}

/// The number that the whole text spells. Empty for any other text.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

/// "1 step", "2 steps".
inline std::string counted(std::int64_t count, std::string_view what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace lab
}  // namespace keel
