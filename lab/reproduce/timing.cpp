// Times whole training steps with each layer, as a graph and eagerly.

#include <fmt/format.h>

#include "lab/report/settings.h"
#include "lab/report/table.h"
#include "lab/reproduce/measure.h"
#include "lab/require.h"
#include "lab/train/bench.h"
#include "lab/train/graph.h"
#include "lab/train/step.h"

namespace keel::lab::reproduce {
namespace {

Measured measure_timing(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  BenchOptions options;
  options.train = what.options;
  options.steps = settings.at("steps").get<std::int64_t>();
  options.rounds = settings.at("rounds").get<std::int64_t>();
  options.longest_round = settings.at("longest_round").get<double>();
  options.graph = what.options.graph;
  std::vector<std::string> names;
  for (const Cell& cell : what.recipe.cells) {
    Json all = lab::to_json(what.options);
    for (const auto& [name, value] : cell.train.items()) all[name] = value;
    const TrainOptions one = train_options(nlohmann::json(all));
    validate(one);
    options.norms.push_back(one.model.norm);
  }
  what.say(fmt::format("timing {} layers, {} of {}", options.norms.size() + 1,
                       counted(options.rounds, "round"), counted(options.steps, "step")));
  Json rows = Json::array();
  for (const StepTiming& timing : bench_train(options)) {
    rows.push_back({{"name", report::layer_name(timing.options)},
                    {"graph", timing.graph},
                    {"milliseconds", rounded(timing.milliseconds, 4)},
                    {"least", rounded(timing.least, 4)},
                    {"most", rounded(timing.most, 4)},
                    {"images_per_second", rounded(timing.images_per_second)},
                    {"ratio", rounded(timing.ratio, 4)}});
  }
  return {.figures = {{"rows", rows}},
          .data = std::nullopt,
          .device = description(device_of(what.options))};
}

Page timing_body(const Recipe& recipe, const Results& results) {
  Page page;
  const Json& paper = recipe.settings.at("paper");
  report::Table theirs({"paper", "ms a step", "of BatchNorm's"});
  for (const Json& row : paper)
    theirs.add({row.at("name").get<std::string>(),
                fmt::format("{:.1f}", row.at("milliseconds").get<double>()),
                fmt::format("{:.2f}", row.at("milliseconds").get<double>() /
                                          paper.at(0).at("milliseconds").get<double>())});
  page.markdown += theirs.markdown() + "\n";
  if (!results.empty()) {
    report::Table ours({"ours", "step", "ms", "least ... most", "images/s", "of BatchNorm's"});
    for (const Json& row : results.measured.at("rows")) {
      ours.add({row.at("name").get<std::string>(),
                row.at("graph").get<bool>() ? "graph" : "one by one",
                fmt::format("{:.2f}", row.at("milliseconds").get<double>()),
                fmt::format("{:.2f} ... {:.2f}", row.at("least").get<double>(),
                            row.at("most").get<double>()),
                fmt::format("{:.0f}", row.at("images_per_second").get<double>()),
                fmt::format("{:.3f}", row.at("ratio").get<double>())});
    }
    page.markdown += ours.markdown() + "\n";
  }
  return page;
}

}  // namespace

const Kind kTiming{measure_timing, timing_body};

}  // namespace keel::lab::reproduce
