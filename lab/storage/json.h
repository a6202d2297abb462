#pragma once

// The lab reads all JSON with this. The parser is compiled only in json.cpp.

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::lab {

/// The deepest nesting allowed: more than any of the lab's files needs, and small enough for recursion.
inline constexpr int kDeepestJson = 64;

/// Throws keel::Error that names `file` and the problem: no JSON, nesting deeper than kDeepestJson, or a repeated
/// name in an object. Takes O(n log n) time in the length of the text.
nlohmann::json parse_json(std::string_view text, const std::string& file);
/// The same with the names in file order. Lookups by name are linear, so an object may have at most 10,000 names.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file);

/// What an exception of the library says, without "[json.exception.out_of_range.403] " in front.
std::string words_of(const std::exception& error);

/// Whether JSON and TOML can hold this as text.
bool is_utf8(std::string_view text);

/// NaN for what is no number.
double number_or_nan(const nlohmann::ordered_json& value);

/// A number, or null if it is not finite.
nlohmann::json finite_or_null(double number);

/// The integer under a name. Throws keel::Error if it is missing, not an integer or out of range. A plain get<> would
/// convert silently.
std::int64_t whole_number(const nlohmann::json& object, const char* name, std::int64_t least = 0);

}  // namespace keel::lab
