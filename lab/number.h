#pragma once

#include <charconv>
#include <optional>
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

}  // namespace keel::lab
