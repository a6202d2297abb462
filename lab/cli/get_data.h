#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "lab/data/get_cifar.h"
#include "lab/report/progress.h"
#include "lab/train/options.h"

namespace keel::cli {

/// What `keel data` takes for a download.
void add_options(CLI::App& app, lab::GetOptions& get);

/// Sees to it that the set is in options.path and makes it the source. Returns kDone or kInterrupted.
int get_data(lab::GetOptions get, lab::DataOptions& options, lab::report::StatusLine& line);

/// The words of a command that trains on it.
std::string train_command(const lab::DataOptions& options);

}  // namespace keel::cli
