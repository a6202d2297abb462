#pragma once

// The lab reads all JSON with this. The parser is compiled only in json.cpp.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::lab {

/// The deepest nesting allowed: more than any of the lab's files, and little enough for recursion to fit on the stack.
inline constexpr int kDeepestJson = 64;

/// Throws keel::Error that names `file` and says what is wrong: no JSON, nested deeper than
/// kDeepestJson, or a name twice in one object. Takes time n log n in the text's length.
nlohmann::json parse_json(std::string_view text, const std::string& file);
/// The same, with the names in their order. They are looked up one by one: an object may have 10,000.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file);

/// What JSON and TOML can hold as text.
bool is_utf8(std::string_view text);

/// A number, or null for what JSON has no number for.
nlohmann::json finite_or_null(double number);

/// The integer under a name. Throws keel::Error if it is missing, not an integer or out of range; a plain get<> would
/// convert silently.
std::int64_t whole_number(const nlohmann::json& object, const char* name, std::int64_t least = 0);

}  // namespace keel::lab
