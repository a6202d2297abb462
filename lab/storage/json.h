#pragma once

// The one way the lab reads JSON. The parser itself is compiled once, in json.cpp.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::lab {

/// Values inside values inside values: more than any file of ours has, and few enough for every walk
/// over them to fit on the stack.
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

/// The whole number under a name. Throws keel::Error where it is missing, no whole number, or out of the range; a
/// plain get<> would make some number of anything.
std::int64_t whole_number(const nlohmann::json& object, const char* name, std::int64_t least = 0);

}  // namespace keel::lab
