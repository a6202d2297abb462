#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::cli {

/// Declares the options of `options` on the app, with help, default and range from the lab's own list:
/// those named in `only`, or all but the run folder where it is empty. `options` must outlive the
/// parse.
void add_options(CLI::App& app, lab::TrainOptions& options, const std::set<std::string>& only = {});

/// Takes from a TOML file those options that the command line did not give; names have dashes or underscores.
/// Throws UsageError with file, line and name: for what is no TOML, no option of the app, not of its type
/// or out of its range.
void read_config(const CLI::App& app, const std::filesystem::path& file,
                 lab::TrainOptions& options);

/// Those of the options that were given on the command line, by name.
nlohmann::json given_options(const CLI::App& app, const lab::TrainOptions& options);

/// A number in the range; the message says what was expected and what came.
CLI::Validator within(const lab::Range& range);

/// What reads a data set, and nothing else.
const std::set<std::string>& data_option_names();
/// Where and how a network runs.
const std::set<std::string>& machine_option_names();

/// Throws UsageError.
void check(const lab::TrainOptions& options);

}  // namespace keel::cli
