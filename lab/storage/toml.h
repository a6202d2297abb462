#pragma once

// TOML, by toml++. The library is compiled in toml.cpp alone.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::lab {

/// The line each name stands in: "cells.bn.train".
using TomlLines = std::map<std::string, std::int64_t>;

/// A TOML text as JSON, names in their order. Throws keel::Error with the file, and in all but the oddest
/// cases the line and its text: for what is no TOML (a name twice, a number out of range), dates, inf and nan, which JSON lacks, and
/// what is nested beyond any use.
nlohmann::ordered_json parse_toml(std::string_view text, const std::string& file,
                                  TomlLines* lines = nullptr);

/// A TOML string that reads back as `text`, whatever is in it; throws keel::Error unless that is UTF-8.
std::string toml_text(std::string_view text);

}  // namespace keel::lab
