#include "lab/reproduce/measure.h"

#include <fmt/format.h>

#include <map>

#include "lab/report/wording.h"
#include "lab/reproduce/run.h"
#include "lab/require.h"
#include "lab/train/trainer.h"

namespace keel::lab::reproduce {

const Kind& kind_of(const Recipe& recipe) {
  static const std::map<std::string, const Kind*> kinds = {
      {"terms", &kTerms},   {"surface", &kSurface},
      {"timing", &kTiming}, {"gradient_error", &kGradientError},
      {"bounds", &kBounds}, {"conditions", &kConditions}};
  const auto found = kinds.find(recipe.kind);
  require(found != kinds.end(), "{}: no kind of experiment is called '{}'", recipe.name,
          recipe.kind);
  return *found->second;
}

namespace {

class Watcher : public Observer {
 public:
  explicit Watcher(const Measuring& what) : what_(what) {}

  void on_start(const RunInfo& info) override { device = info.device; }
  void on_epoch(const EpochRecord& record) override {
    what_.say(
        fmt::format("step {}: test error {}", record.step, report::percent(record.test_error)));
  }
  void on_layer(const LayerState& state, std::int64_t step) override {
    require(state.covariance.defined() && state.covariance.size(0) == 1,
            "{}: expected a layer with one covariance, got {}", what_.recipe.name, state.name);
    if (snapshots.empty() || snapshots.back().step != step)
      snapshots.push_back({step, state.covariance[0]});
  }

  std::string device;
  std::vector<Snapshot> snapshots;

 private:
  const Measuring& what_;
};

}  // namespace

Snapshots training_covariances(const Measuring& what) {
  TrainOptions options = what.options;
  options.model.norm.group_size = 0;
  options.recalibrate = 0;  // its test error is not used
  const DataSet data = load(options.data);
  Watcher watcher(what);
  TrainOptions first = options;
  first.max_steps = 1;
  train(first, data, watcher);
  const Result result = train(options, data, watcher);
  require(result.status == "finished", "{}: the training was {}{}", what.recipe.name, result.status,
          result.failure ? ": " + result.failure->what : "");
  return {watcher.snapshots, description_of(data), watcher.device};
}

std::vector<torch::Tensor> blocks(const Snapshot& snapshot, std::int64_t d, double eps) {
  const std::int64_t channels = snapshot.covariance.size(0);
  std::vector<torch::Tensor> found;
  if (channels % d != 0) return found;
  for (std::int64_t first = 0; first < channels; first += d) {
    const auto block = snapshot.covariance.narrow(0, first, d).narrow(1, first, d);
    found.push_back(block + eps * torch::eye(d, torch::kDouble));
  }
  return found;
}

}  // namespace keel::lab::reproduce
