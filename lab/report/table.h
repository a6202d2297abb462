#pragma once

#include <string>
#include <vector>

namespace keel::lab::report {

/// A table of text. The first `words` columns are words, on the left of their cells, the others numbers, on the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heading, std::size_t words = 1)
      : words_(words), rows_{std::move(heading)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Sets one cell of the row that begins with `names`. Rows and columns that are new are added.
  void set(const std::vector<std::string>& names, const std::string& column,
           const std::string& cell);

  /// The cells are Markdown.
  std::string markdown() const;
  /// The cells are plain text.
  std::string html() const;
  /// For a terminal, a line per row.
  std::string aligned() const;

 private:
  std::size_t words_;
  std::vector<std::vector<std::string>> rows_;  ///< the heading first
};

}  // namespace keel::lab::report
