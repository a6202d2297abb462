#pragma once

// Groups runs of one experiment (options_beside_the_experiment()). A group is one entry of the report.

#include <functional>
#include <string>
#include <vector>

#include "lab/report/run_folder.h"
#include "lab/train/options.h"

namespace keel::lab::report {

struct Spread {
  int count = 0;  ///< number of finite values
  double mean = kNotDone, deviation = kNotDone, least = kNotDone, most = kNotDone;
};

/// Over the finite `values`. The deviation is the sample deviation (n - 1), unknown for one value.
Spread spread(const std::vector<double>& values);

struct Group {
  std::string label;  ///< the layer's name, and what distinguishes the group from others
  std::vector<Run> runs;

  int failures() const;
  /// Over the runs that have not failed, and have this error.
  Spread test_error(double Result::*error = &Result::test_error) const;
  Spread images_per_second() const;
};

/// In the order of each group's first run.
std::vector<Group> grouped(const std::vector<Run>& runs);

/// The name of the layer under test, e.g. "ZCA d=16, power iteration", from the settings that `setting` looks up.
/// Empty if they do not name one.
std::string layer_name(const std::function<std::string(const std::string&)>& setting);
std::string layer_name(const TrainOptions& options);

/// The settings that differ between groups.
std::vector<std::string> differing_settings(const std::vector<Group>& groups);

}  // namespace keel::lab::report
