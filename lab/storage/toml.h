#pragma once

// Reads TOML with toml++, which is compiled only in toml.cpp.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::lab {

/// The line of each name, e.g. of "cells.bn.train".
using TomlLines = std::map<std::string, std::int64_t>;

/// A TOML text as JSON, with names in file order. Throws keel::Error with the file and, in nearly all cases, the line
/// and its text: for invalid TOML (a repeated name, a number out of range), for dates, inf and nan, which JSON lacks,
/// and for excessive nesting.
nlohmann::ordered_json parse_toml(std::string_view text, const std::string& file,
                                  TomlLines* lines = nullptr);

/// A TOML string that reads back as `text`. Throws keel::Error unless `text` is UTF-8.
std::string toml_text(std::string_view text);

}  // namespace keel::lab
