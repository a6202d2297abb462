#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "lab/train/options.h"

namespace keel::cli {

/// Declares the fields of `options` named in `only` on the app, with help, default and range from the lab's list. If
/// `only` is empty, declares all but the run folder. `options` must outlive the parse. `by_default`, if given, is what the
/// help shows instead of the defaults, for a command that takes them from elsewhere.
void add_options(CLI::App& app, lab::TrainOptions& options, const std::set<std::string>& only = {},
                 const std::string& by_default = "");

/// Reads options that the command line did not give from a TOML file. Names have dashes or underscores. Throws UsageError
/// with file, line and name if the file is not TOML, or if an option is unknown, of the wrong type or out of range.
void read_config(const CLI::App& app, const std::filesystem::path& file,
                 lab::TrainOptions& options);

/// The names of the options that were given on the command line.
nlohmann::json given_options(const CLI::App& app, const lab::TrainOptions& options);

/// Checks that a number is in the range. The message gives the expected range and the actual value.
CLI::Validator within(const lab::Range& range);

/// Says on stderr if the machine has fewer cores than the threads that were asked for.
void mention_fewer_threads(const lab::TrainOptions& options);

/// Throws UsageError.
void check(const lab::TrainOptions& options);
/// Throws UsageError if the options ask for a GPU that is not there, or for a precision that this machine does not have.
void check_machine(const lab::TrainOptions& options);

}  // namespace keel::cli
