#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/report/wording.h"

namespace keel::lab::report {

void Table::set(const std::vector<std::string>& names, const std::string& column,
                const std::string& cell) {
  const auto place = std::ranges::find(rows_[0], column) - rows_[0].begin();
  if (rows_[0].begin() + place == rows_[0].end()) {
    for (auto& row : rows_) row.emplace_back();
    rows_[0].back() = column;
  }
  auto row = std::ranges::find_if(
      rows_, [&](const auto& one) { return std::equal(names.begin(), names.end(), one.begin()); });
  if (row == rows_.end()) row = rows_.insert(row, names);
  row->resize(rows_[0].size());
  row->at(std::size_t(place)) = cell;
}

std::string Table::markdown() const {
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

std::string Table::html() const {
  std::string out = "<div class='scroll'><table>\n";
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const char* const kind = i == 0 ? "th" : "td";
    out += "<tr>";
    for (std::size_t j = 0; j < rows_[i].size(); ++j)
      out += fmt::format("<{0}{1}>{2}</{0}>", kind, j < words_ ? "" : " class='n'",
                         escaped(rows_[i][j]));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string Table::aligned() const {
  std::vector<std::string> lines(rows_.size());
  for (std::size_t j = 0; j < rows_[0].size(); ++j) {
    std::size_t width = 0;
    for (const auto& row : rows_) width = std::max(width, columns(row[j]));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::string gap(width - columns(rows_[i][j]), ' ');
      lines[i] += (j > 0 ? "  " : "") + (j < words_ ? rows_[i][j] + gap : gap + rows_[i][j]);
    }
  }
  lines.insert(lines.begin() + 1, std::string(columns(lines[0]), '-'));
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

}  // namespace keel::lab::report
