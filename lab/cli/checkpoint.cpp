#include "lab/cli/checkpoint.h"

#include <fmt/format.h>

namespace keel::cli {

lab::Checkpoint open_checkpoint(const std::string& where, lab::report::StatusLine& line) {
  require(std::filesystem::exists(where),
          fmt::format("keel: expected a run folder or a checkpoint, {} is not there", where));
  auto found = lab::newest_checkpoint(where, [&](const std::string& text) { line.print(text); });
  require(found.has_value(), fmt::format("keel: expected a checkpoint in {}, got none", where));
  return std::move(*found);
}

}  // namespace keel::cli
