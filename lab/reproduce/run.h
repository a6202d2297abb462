#pragma once

// Runs the missing trials of an experiment, each in its own process, so that a crash loses only one trial.

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

/// Receives progress for the user: a line per trial, and what is running.
struct RunPrinter {
  std::function<void(const std::string&)> line = [](const std::string&) {};
  std::function<void(const std::string&)> status = [](const std::string&) {};
};

/// Throws keel::Error if existing results were made with other options.
RunOutcome run_trials(const Recipe& recipe, const RunOptions& options, const RunPrinter& printer);

/// The child process: reads the trial that run_trials requests, trains, and writes the outcome beside it.
void run_requested_trial(const std::filesystem::path& request);

/// Whether one of the comma-separated patterns fits; none fits everything.
bool matches(const std::string& patterns, const std::string& name);

}  // namespace keel::lab::reproduce
