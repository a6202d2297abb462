#pragma once

#include <string>
#include <vector>

namespace keel::lab::reproduce {

/// A Markdown table. The first `words` columns are text, the others numbers.
class Table {
 public:
  explicit Table(std::vector<std::string> heading, std::size_t words = 1)
      : words_(words), rows_{std::move(heading)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const {
    std::string out;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      out += "|";
      for (const auto& cell : rows_[i]) out += " " + cell + " |";
      out += "\n";
      if (i > 0) continue;
      out += "|";
      for (std::size_t j = 0; j < rows_[0].size(); ++j) out += j < words_ ? "---|" : "--:|";
      out += "\n";
    }
    return out;
  }

 private:
  std::size_t words_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace keel::lab::reproduce
