#pragma once

// Groups runs that differ only in their seed. A group is one entry of the report.

#include <functional>
#include <string>
#include <vector>

#include "lab/report/run_folder.h"

namespace keel::lab::report {

struct Spread {
  int count = 0;  ///< of finite values
  double mean = kUnknown, deviation = kUnknown, least = kUnknown, most = kUnknown;
};

/// Over the finite ones of `values`; the deviation is a sample's (n - 1), unknown for one value.
Spread spread(const std::vector<double>& values);

struct Group {
  std::string label;  ///< the layer's name, and what else sets the group apart from the others
  std::vector<Run> runs;

  int failures() const;
  /// Of the runs that have not failed; the second, with running statistics made again, of those that did so.
  Spread test_error() const;
  Spread recalibrated_test_error() const;
  Spread images_per_second() const;

 private:
  std::vector<double> of_those_that_did_not_fail(double Run::*value) const;
};

/// In the order of the first run of each.
std::vector<Group> grouped(const std::vector<Run>& runs);

/// "ZCA d=16, power iteration": the layer under test, from the settings that `setting` looks up; an
/// empty text where they do not say.
std::string layer_name(const std::function<std::string(const std::string&)>& setting);

/// The settings whose value is not the same in all groups.
std::vector<std::string> differing_settings(const std::vector<Group>& groups);

/// Mean over the runs of a group at each x they share, and the spread as a band where there are two or
/// more runs. Long series are thinned to at most `points` by averaging neighbours.
struct Trace {
  std::vector<double> x, y, low, high;
};
enum class Average { arithmetic, geometric };
Trace trace(const Group& group, double StepMetrics::*value, Average average = Average::arithmetic,
            std::size_t points = 160);
Trace trace(const Group& group, double EpochMetrics::*value);

}  // namespace keel::lab::report
