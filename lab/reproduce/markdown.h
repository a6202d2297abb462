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
  std::string text() const;

 private:
  std::size_t words_;
  std::vector<std::vector<std::string>> rows_;
};

/// The note at the top of every generated page.
std::string generated_note(const std::string& experiment);

}  // namespace keel::lab::reproduce
