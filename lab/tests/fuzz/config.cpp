// The config.toml of a run, as `keel train --config` reads it.

#include <nlohmann/json.hpp>

#include "keel/error.h"
#include "lab/report/settings.h"
#include "lab/storage/toml.h"
#include "lab/tests/fuzz/fuzz.h"
#include "lab/train/options.h"

namespace keel::fuzz::config {

/// The options without those of one call, which are not written.
nlohmann::json kept(const lab::TrainOptions& options) {
  nlohmann::json json = lab::to_json(options);
  json.erase("run");
  json.erase("resume");
  return json;
}

void attack(const std::string& bytes) {
  const nlohmann::json table = lab::parse_toml(bytes, kHostile);
  lab::TrainOptions options;
  try {
    options = lab::train_options(table);
  } catch (const Error&) {
    return;  // the message names the option; the command line adds the file
  }
  const auto again = must("to write what was read", [&] {
    return lab::train_options(lab::parse_toml(lab::report::toml(options), "written"));
  });
  expect(kept(again) == kept(options), "what was written to be what was read");
}

std::vector<std::string> seeds() { return {lab::report::toml({})}; }

const Registration registration({"config", attack, seeds});

}  // namespace keel::fuzz::config
