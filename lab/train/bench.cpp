#include "lab/train/bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <algorithm>
#include <chrono>
#include <memory>

#include "keel/torch/threads.h"
#include "lab/require.h"
#include "lab/train/step.h"
#include "lab/train/stopwatch.h"

namespace keel::lab {
namespace {

/// Random images. A step takes as long on them as on real ones.
Images random_images(const TrainOptions& options) {
  const std::int64_t count = 8 * options.batch, size = options.data.size;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  return {torch::randint(0, 256, {count, 3, size, size}, generator, torch::kUInt8),
          torch::randint(0, options.model.classes, {count}, generator, torch::kLong)};
}

class Case {
 public:
  Case(const TrainOptions& options, const Images& images, torch::Device device)
      : batch_(options.batch), device_(device) {
    torch::manual_seed(options.seed);
    ResNet model(options.model);
    model->to(device);
    step_ = std::make_unique<TrainingStep>(model, images, AugmentOptions{}, options, device);
    step_->start_epoch(0);
    timing_.options = options;
    timing_.graph = uses_graph(options, device);
    run(TrainingStep::kStepsBeforeCapture + 4);  // chooses algorithms, captures the graph
    synchronise(device_);
    measure_memory();
    seconds_a_step_ = seconds_of(2) / 2;
  }

  /// Runs `steps` steps, or as many as fit into `longest` seconds.
  void round(std::int64_t steps, double longest) {
    while (steps > 1 && double(steps) * seconds_a_step_ > longest) --steps;
    rounds_.push_back(1e3 * seconds_of(steps) / double(steps));
  }

  StepTiming result() {
    std::ranges::sort(rounds_);
    timing_.least = rounds_.front();
    timing_.most = rounds_.back();
    timing_.milliseconds = rounds_[rounds_.size() / 2];
    timing_.images_per_second = 1e3 * double(batch_) / timing_.milliseconds;
    return timing_;
  }

 private:
  double seconds_of(std::int64_t steps) {
    const auto start = std::chrono::steady_clock::now();
    run(steps);
    synchronise(device_);
    return seconds_since(start);
  }

  void run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) step_->run(next_++ % step_->batches(), 0.01);
  }

  void measure_memory() {
    if (timing_.graph) return;  // a graph's memory stays reserved, so its peak cannot be measured
    reset_peak(device_);
    const double before = peak_mib(device_);
    run(1);
    synchronise(device_);
    timing_.peak_mib = peak_mib(device_) - before;
  }

  std::int64_t batch_, next_ = 0;
  double seconds_a_step_ = 0;
  torch::Device device_;
  std::unique_ptr<TrainingStep> step_;
  StepTiming timing_;
  std::vector<double> rounds_;
};

void check(const BenchOptions& options) {
  validate(options.train);
  require(options.steps >= 1 && options.rounds >= 1,
          "expected steps and rounds >= 1, got {} and {}", options.steps, options.rounds);
  require(options.eager || options.graph, "expected eager, graph or both, got neither");
}

}  // namespace

std::vector<StepTiming> bench_train(const BenchOptions& options) {
  check(options);
  keel::use_all_cores(threads_here(options.train));
  const torch::Device device = device_of(options.train);
  const DeviceScope scope(device);
  const Precision precision(options.train, device);
  const Images images = random_images(options.train).to(device);

  std::vector<NormOptions> norms{NormOptions{}};  // BatchNorm
  norms.insert(norms.end(), options.norms.begin(), options.norms.end());
  std::vector<std::unique_ptr<Case>> cases;
  for (const bool graph : {false, true}) {
    if (graph ? !options.graph || !device.is_cuda() : !options.eager && device.is_cuda()) continue;
    for (const NormOptions& norm : norms) {
      TrainOptions train = options.train;
      train.model.norm = norm;
      train.graph = graph;
      cases.push_back(std::make_unique<Case>(train, images, device));
    }
  }
  for (std::int64_t round = 0; round < options.rounds; ++round)
    for (const auto& one : cases) one->round(options.steps, options.longest_round);

  std::vector<StepTiming> timings;
  for (const auto& one : cases) timings.push_back(one->result());
  for (StepTiming& timing : timings) {
    // The first of each kind is BatchNorm.
    const auto base = std::ranges::find(timings, timing.graph, &StepTiming::graph);
    timing.ratio = timing.milliseconds / base->milliseconds;
  }
  return timings;
}

}  // namespace keel::lab
