#pragma once

// The comparison of all runs as columns of text, for the terminal and the page's table.

#include <string>
#include <vector>

#include "lab/report/groups.h"

namespace keel::lab::report {

/// A column of the table: its heading, and a text for each group.
struct Column {
  std::string name;
  std::vector<std::string> cells;
  bool words = false;  ///< text is left-aligned, numbers right-aligned
};

/// The label first. `recalibrated` is there if a run has such an error.
std::vector<Column> table_columns(const std::vector<Group>& groups);

/// Whether any run was evaluated with recomputed running statistics.
bool any_is_recalibrated(const std::vector<Group>& groups);

/// Aligned columns, one line per group.
std::string text_table(const std::vector<Group>& groups);

}  // namespace keel::lab::report
