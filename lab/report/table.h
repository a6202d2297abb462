#pragma once

// The comparison of all runs as rows of text, for the terminal and the page's table.

#include <string>
#include <vector>

#include "lab/report/groups.h"

namespace keel::lab::report {

struct Row {
  std::string label, runs, test_error;
  std::string recalibrated;  ///< empty, with its heading, if no run has such an error
  std::string best, failed, speed, time;
};

/// The columns' headings.
Row heading(const std::vector<Group>& groups);
std::vector<Row> rows(const std::vector<Group>& groups);

/// Aligned columns, one line per group.
std::string text_table(const std::vector<Group>& groups);

}  // namespace keel::lab::report
