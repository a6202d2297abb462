#pragma once

#include <string>
#include <vector>

#include "lab/report/groups.h"
#include "lab/report/table.h"

namespace keel::lab::report {

/// In the first lines of every page.
inline constexpr const char* kPageMark = "<meta name='generator' content='keel report'>";

struct PageOptions {
  std::string title = "Training report";
  std::string made_by = "";  ///< a line at the bottom: program, version, time
  std::string numbers = "";  ///< the name of the file beside it that has `values`
};

/// A row for each group. There is a column `recalibrated` if a run has such an error.
Table results_table(const std::vector<Group>& groups);

/// One self-contained HTML page about the groups: table, curves, spectra, settings. It loads nothing else.
std::string page(const std::vector<Group>& groups, const PageOptions& options);

/// The first line of what `values` returns.
inline constexpr const char* kValuesMark = "layer,folder,seed,step,epoch,quantity,value";

/// Every number of the runs' records that is known, as CSV: a line each, named as in metrics.jsonl.
std::string values(const std::vector<Group>& groups);

}  // namespace keel::lab::report
