#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace keel::lab {

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

}  // namespace keel::lab
