#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace keel::lab::reproduce {

/// Text from a file of results, without what Markdown would take for HTML or for the end of a table's cell.
inline std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'    ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '&'  ? "&amp;"
           : c == '|'  ? "&#124;"
           : c == '\n' ? " "
                       : std::string(1, c);
  return out;
}

/// A Markdown table. The first `words` columns are text, the others numbers.
class Table {
 public:
  explicit Table(std::vector<std::string> heading, std::size_t words = 1)
      : words_(words), rows_{std::move(heading)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Sets one cell of the row that begins with `names`. Rows and columns that are new are added.
  void set(const std::vector<std::string>& names, const std::string& column,
           const std::string& cell) {
    const auto place = std::ranges::find(rows_[0], column) - rows_[0].begin();
    if (rows_[0].begin() + place == rows_[0].end()) {
      for (auto& row : rows_) row.emplace_back();
      rows_[0].back() = column;
    }
    auto row = std::ranges::find_if(rows_, [&](const auto& one) {
      return std::equal(names.begin(), names.end(), one.begin());
    });
    if (row == rows_.end()) row = rows_.insert(row, names);
    row->resize(rows_[0].size());
    row->at(std::size_t(place)) = cell;
  }
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
