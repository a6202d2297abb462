#include "lab/reproduce/markdown.h"

#include <fmt/format.h>

namespace keel::lab::reproduce {

std::string Table::text() const {
  std::string out;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    out += "|";
    for (const auto& cell : rows_[i]) out += fmt::format(" {} |", cell);
    out += "\n";
    if (i > 0) continue;
    out += "|";
    for (std::size_t j = 0; j < rows_[0].size(); ++j) out += j < words_ ? "---|" : "--:|";
    out += "\n";
  }
  return out;
}

std::string generated_note(const std::string& experiment) {
  return fmt::format(
      "<!-- Written by `keel reproduce {} --page` from recipe.toml and results.json: change those. "
      "-->\n",
      experiment);
}

}  // namespace keel::lab::reproduce
