#include "lab/cli/checkpoint.h"

#include "lab/require.h"

namespace keel::cli {

lab::Checkpoint open_checkpoint(const std::string& where, lab::report::StatusLine& line) {
  require(std::filesystem::exists(where), "expected a run folder or a checkpoint, {} is not there",
          where);
  const auto ending = std::filesystem::path(where).extension();
  require(std::filesystem::is_directory(where) || ending == ".safetensors" || ending == ".json",
          "expected a run folder, or a checkpoint's file that ends in .safetensors "
          "or .json, got {}",
          where);
  auto found = lab::newest_checkpoint(where, [&](const std::string& text) { line.print(text); });
  require(found.has_value(), "expected a checkpoint in {}, got none", where);
  return std::move(*found);
}

}  // namespace keel::cli
