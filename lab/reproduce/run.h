#pragma once

// Runs the missing trials of an experiment. Each is a `keel train`, so that a crash loses only one trial.

#include <filesystem>
#include <string>

#include "lab/report/progress.h"
#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

struct RunOptions {
  std::string schedule;         ///< empty: the recipe's default
  Json given = Json::object();  ///< options of keel train given on the command line
  std::int64_t trials = 0;      ///< per cell; 0: as many as the recipe says
  std::string cells;            ///< patterns with * and ?, separated by commas; empty: all
  std::int64_t jobs = 1;        ///< trials that run at the same time
  double budget = 0;  ///< seconds; then no trial starts and running ones are ended; 0: no limit
  std::filesystem::path runs;     ///< for the trials' run folders; empty: none are kept
  std::filesystem::path results;  ///< the results file
  bool fresh = false;             ///< ignore existing results
  std::string command;            ///< the command line, for the record
};

struct RunOutcome {
  std::int64_t ran = 0, failed = 0, crashed = 0;  ///< failed: included in ran
  bool stopped = false;  ///< by a signal or the budget, with trials missing
};

/// Prints a line for each trial, below which `line` shows those that run. Throws keel::Error if existing results were made
/// with other options.
RunOutcome run_trials(const Recipe& recipe, const RunOptions& options, report::StatusLine& line);

/// Whether one of the comma-separated patterns matches. Empty patterns match everything.
bool matches(const std::string& patterns, const std::string& name);

}  // namespace keel::lab::reproduce
