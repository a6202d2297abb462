// Times whole training steps with each layer, as a graph and eagerly.

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "keel/torch/threads.h"
#include "lab/report/groups.h"
#include "lab/report/table.h"
#include "lab/reproduce/measure.h"
#include "lab/require.h"
#include "lab/train/graph.h"
#include "lab/train/step.h"
#include "lab/train/stopwatch.h"

namespace keel::lab::reproduce {
namespace {

/// Random images. A step takes as long on them as on real ones.
Images random_images(const TrainOptions& options) {
  const std::int64_t count = 8 * options.batch, size = options.data.size;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  return {torch::randint(0, 256, {count, 3, size, size}, generator, torch::kUInt8),
          torch::randint(0, options.model.classes, {count}, generator, torch::kLong)};
}

/// Steps with one layer, as a graph or eagerly.
class Case {
 public:
  Case(const TrainOptions& options, const Images& images, torch::Device device)
      : options_(options), device_(device) {
    torch::manual_seed(options.seed);
    ResNet model(options.model);
    model->to(device);
    step_ = std::make_unique<TrainingStep>(model, images, AugmentOptions{}, options, device);
    step_->start_epoch(0);
    seconds_of(TrainingStep::kStepsBeforeCapture + 4);  // chooses algorithms, captures the graph
    seconds_a_step_ = seconds_of(2) / 2;
  }

  /// Runs `steps` steps, or as many as fit into `longest` seconds.
  void round(std::int64_t steps, double longest) {
    while (steps > 1 && double(steps) * seconds_a_step_ > longest) --steps;
    rounds_.push_back(1e3 * seconds_of(steps) / double(steps));
  }

  bool graph() const { return uses_graph(options_, device_); }
  /// Milliseconds a step: the median of the rounds.
  double median() {
    std::ranges::sort(rounds_);
    return rounds_[rounds_.size() / 2];
  }
  /// `base` is the median of BatchNorm's step of the same kind.
  Json row(double base) {
    const double middle = median();
    return {{"name", report::layer_name(options_)},
            {"graph", graph()},
            {"milliseconds", rounded(middle, 4)},
            {"least", rounded(rounds_.front(), 4)},
            {"most", rounded(rounds_.back(), 4)},
            {"images_per_second", rounded(1e3 * double(options_.batch) / middle)},
            {"ratio", rounded(middle / base, 4)}};
  }

 private:
  double seconds_of(std::int64_t steps) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) step_->run(next_++ % step_->batches(), 0.01);
    synchronise(device_);
    return seconds_since(start);
  }

  TrainOptions options_;
  std::int64_t next_ = 0;
  double seconds_a_step_ = 0;
  torch::Device device_;
  std::unique_ptr<TrainingStep> step_;
  std::vector<double> rounds_;
};

/// The options of BatchNorm's steps, and of those of each cell.
std::vector<TrainOptions> layers_of(const Measuring& what) {
  std::vector<TrainOptions> all{what.options};
  all[0].model.norm = NormOptions{};
  for (const Cell& cell : what.recipe.cells) {
    Json options = lab::to_json(what.options);
    for (const auto& [name, value] : cell.train.items()) options[name] = value;
    all.push_back(train_options(nlohmann::json(options)));
    validate(all.back());
  }
  return all;
}

Measured measure_timing(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  const auto steps = settings.at("steps").get<std::int64_t>(),
             rounds = settings.at("rounds").get<std::int64_t>();
  const auto layers = layers_of(what);
  what.say(fmt::format("timing {} layers, {} of {}", layers.size(), counted(rounds, "round"),
                       counted(steps, "step")));
  keel::use_all_cores(threads_here(what.options));
  const torch::Device device = device_of(what.options);
  const DeviceScope scope(device);
  const Precision precision(what.options, device);
  const Images images = random_images(what.options).to(device);
  std::vector<std::unique_ptr<Case>> cases;
  for (const bool graph : {false, true})
    for (TrainOptions options : layers) {
      if (graph && (!options.graph || !device.is_cuda())) continue;
      options.graph = graph;
      cases.push_back(std::make_unique<Case>(options, images, device));
    }
  for (std::int64_t round = 0; round < rounds; ++round)  // the cases take turns
    for (const auto& one : cases) one->round(steps, settings.at("longest_round").get<double>());
  Json rows = Json::array();
  for (std::size_t i = 0; i < cases.size(); ++i)
    rows.push_back(cases[i]->row(cases[i - i % layers.size()]->median()));
  return {.figures = {{"rows", rows}}, .data = std::nullopt, .device = description(device)};
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
