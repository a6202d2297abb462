#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace keel::lab::reproduce {

/// Everything this folder reads and writes keeps its order.
using Json = nlohmann::ordered_json;

/// What recipes use of TOML: tables, text on one line and, in """, on several, numbers, booleans,
/// lists (over several lines too), tables in braces, comments. Throws keel::Error naming the file and
/// the line.
Json parse_toml(const std::string& text, const std::string& file);

}  // namespace keel::lab::reproduce
