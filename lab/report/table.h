#pragma once

// The comparison of all runs as rows of text: printed on a terminal, and the page's table.

#include <string>
#include <vector>

#include "lab/report/groups.h"

namespace keel::lab::report {

struct Row {
  std::string label, runs, test_error;
  std::string
      recalibrated;  ///< empty in all rows and in the heading where no run has such an error
  std::string best, failed, speed, time;
};

/// The columns' headings.
Row heading(const std::vector<Group>& groups);
std::vector<Row> rows(const std::vector<Group>& groups);

/// Aligned columns, one line a group.
std::string text_table(const std::vector<Group>& groups);

}  // namespace keel::lab::report
