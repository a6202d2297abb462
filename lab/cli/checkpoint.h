#pragma once

#include <string>

#include "lab/report/progress.h"
#include "lab/train/checkpoint.h"

namespace keel::cli {

/// The newest good checkpoint of a run folder, or the one named. Reports damaged ones on `line`. Throws keel::Error
/// if there is no good one.
lab::Checkpoint open_checkpoint(const std::string& where, lab::report::StatusLine& line);

}  // namespace keel::cli
