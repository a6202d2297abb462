// metrics.jsonl, config.toml, result.json and spectrum.json of a run, separated by form feeds.

#include "lab/report/run_folder.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/report/groups.h"
#include "lab/report/page.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::run_folder {

void attack(const std::string& bytes) {
  namespace report = lab::report;
  const auto where = folder() / kHostile;
  std::istringstream all(bytes);
  for (const char* name : {"metrics.jsonl", "config.toml", "result.json", "spectrum.json"}) {
    std::string text;
    std::filesystem::remove(where / name);
    if (std::getline(all, text, '\f')) testing::write_bytes(where / name, text);
  }
  const report::Run run = report::read_run(where);
  must("to report what was read", [&] {
    const auto groups = report::grouped({run, run});
    return report::results_table(groups).aligned() + report::page(groups, {"title", "made by"});
  });
  // As a resumed run does.
  report::MetricsWriter(where / "metrics.jsonl", 2).write({{"kind", "step"}, {"step", 3}});
  must("to read what was written", [&] { return report::read_metrics(where / "metrics.jsonl"); });
}

const Registration registration({"run_folder", attack, {}});

}  // namespace keel::fuzz::run_folder
