#pragma once

// Runs what is missing of an experiment, trial by trial, each in a process of its own: a crash loses
// one trial.

#include <filesystem>
#include <functional>
#include <string>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

struct RunOptions {
  std::string schedule;         ///< empty: the recipe's default
  Json given = Json::object();  ///< options of keel train that the command line names
  std::int64_t trials = 0;      ///< of each cell; 0: as many as the recipe says
  std::string cells;            ///< patterns with * and ?, separated by commas; empty: all
  std::int64_t jobs = 1;        ///< trials side by side
  double budget = 0;  ///< seconds after which nothing new is begun and trials are ended; 0: none
  std::filesystem::path runs;     ///< where trials keep run folders; empty: nowhere
  std::filesystem::path results;  ///< the file
  bool fresh = false;             ///< what is there already does not count
  std::string command;            ///< as it was called, for the record
};

struct RunOutcome {
  std::int64_t ran = 0, failed = 0, crashed = 0;  ///< failed: among those that ran
  bool stopped = false;  ///< by a signal, or the budget: trials are missing
};

/// Told what people want to read: a line for each trial, and what runs now.
struct RunPrinter {
  std::function<void(const std::string&)> line = [](const std::string&) {};
  std::function<void(const std::string&)> status = [](const std::string&) {};
};

/// Throws keel::Error where the results that are there were made otherwise.
RunOutcome run_trials(const Recipe& recipe, const RunOptions& options, const RunPrinter& printer);

/// The other end: reads what run_trials asks for, trains, and writes the outcome beside it.
void run_requested_trial(const std::filesystem::path& request);

/// Whether one of the comma-separated patterns fits; none fits everything.
bool matches(const std::string& patterns, const std::string& name);

}  // namespace keel::lab::reproduce
