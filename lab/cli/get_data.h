#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lab/data/get_cifar.h"
#include "lab/report/progress.h"
#include "lab/train/options.h"

namespace keel::cli {

/// The download options of `keel data`.
void add_options(CLI::App& app, lab::GetOptions& get);

/// Downloads the set into options.path unless it exists, and makes it the source. Returns kDone or kInterrupted.
int get_data(lab::GetOptions get, lab::DataOptions& options, lab::report::StatusLine& line);

/// A command line that trains on this data.
std::string train_command(const lab::DataOptions& options);

}  // namespace keel::cli
