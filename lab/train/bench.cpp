#include "lab/train/bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "keel/torch/threads.h"
#include "lab/number.h"
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

/// Scope that adds up the time this thread spends inside operators of LibTorch and keel. On the CPU, backward runs on the
/// calling thread too. At most one per thread.
class OperatorTime {
 public:
  OperatorTime()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}))) {
    depth_ = 0;
    total_ = 0;
  }
  ~OperatorTime() { at::removeCallback(handle_); }
  OperatorTime(const OperatorTime&) = delete;
  OperatorTime& operator=(const OperatorTime&) = delete;

  double seconds() const { return total_; }

 private:
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
    if (depth_++ == 0) entered_ = std::chrono::steady_clock::now();
    return nullptr;
  }
  static void leave(const at::RecordFunction&, at::ObserverContext*) {
    if (--depth_ == 0) total_ += seconds_since(entered_);
  }

  // LibTorch's callbacks are plain functions without state, so the counters are thread-local.
  static inline thread_local int depth_ = 0;
  static inline thread_local std::chrono::steady_clock::time_point entered_;
  static inline thread_local double total_ = 0;
  at::CallbackHandle handle_;
};

class Case {
 public:
  Case(const TrainOptions& options, const Images& images, torch::Device device)
      : batch_(options.batch), device_(device) {
    torch::manual_seed(options.seed);
    ResNet model(options.model);
    model->to(device);
    step_ = std::make_unique<TrainingStep>(model, images, AugmentOptions{}, options, device);
    step_->start_epoch(0);
    timing_.name = name_of(options.model);
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

  /// Separate from the timed rounds, because the callbacks take time too.
  void measure_operators(std::int64_t steps) {
    if (!device_.is_cpu()) return;
    const OperatorTime inside;
    const double seconds = seconds_of(steps);
    timing_.outside_operators = 1 - inside.seconds() / seconds;
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
          "keel::lab::bench_train: expected steps and rounds >= 1, got {} and {}", options.steps,
          options.rounds);
  require(options.eager || options.graph,
          "keel::lab::bench_train: expected eager, graph or both, got neither");
}

/// Median over the rounds, in milliseconds per call.
double milliseconds_of(const std::function<void()>& part, const BenchOptions& options,
                       torch::Device device) {
  for (int i = 0; i < 3; ++i) part();
  std::unique_ptr<StepGraph> graph;
  if (uses_graph(options.train, device)) graph = capture(part);
  std::vector<double> rounds;
  for (std::int64_t round = 0; round <= options.rounds; ++round) {
    synchronise(device);
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < options.steps; ++i) graph ? graph->replay() : part();
    synchronise(device);
    if (round > 0)  // the first round warms up
      rounds.push_back(1e3 * seconds_since(start) / double(options.steps));
  }
  std::ranges::sort(rounds);
  return rounds[rounds.size() / 2];
}

}  // namespace

std::string name_of(const ModelOptions& model) {
  const NormOptions& norm = model.norm;
  if (!whitens(norm)) return norm.kind;
  const std::size_t sites = tested_sites(model).size();
  const std::int64_t d = norm.group_size > 0 ? norm.group_size : first_channels(model);
  std::string name = norm.group_size == 0 && sites > 1
                         ? fmt::format("{} {}", norm.kind, norm.rule)  // each site has its own d
                         : fmt::format("{} d={} {}", norm.kind, d, norm.rule);
  if (norm.kind == "pca")
    name += norm.components > 0 ? fmt::format(" e={}", norm.components)
                                : fmt::format(" {:g} %", 100 * norm.energy);
  if (norm.kind == "zca" && norm.rank == "full") name += " full rank";
  if (model.where == "all") name += ", all norms";
  if (model.where != "all" && model.where != "first") name += ", " + counted(sites, "norm");
  return name;
}

std::vector<StepTiming> bench_train(const BenchOptions& options) {
  check(options);
  keel::use_all_cores(threads_here(options.train));
  const torch::Device device = device_of(options.train);
  require_tf32("keel::lab::bench", options.train, device);
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
  for (const auto& one : cases) one->measure_operators(options.steps);

  std::vector<StepTiming> timings;
  for (const auto& one : cases) timings.push_back(one->result());
  for (StepTiming& timing : timings) {
    // The first of each kind is BatchNorm.
    const auto base = std::ranges::find(timings, timing.graph, &StepTiming::graph);
    timing.ratio = timing.milliseconds / base->milliseconds;
  }
  return timings;
}

std::vector<PartTiming> bench_parts(const BenchOptions& options) {
  check(options);
  keel::use_all_cores(threads_here(options.train));
  const torch::Device device = device_of(options.train);
  require_tf32("keel::lab::bench", options.train, device);
  const DeviceScope scope(device);
  const Precision precision(options.train, device);
  TrainOptions train = options.train;
  train.model.norm = {};
  train.graph = false;  // this function captures each part separately
  torch::manual_seed(train.seed);
  ResNet model(train.model);
  model->to(device);
  TrainingStep step(model, random_images(train).to(device), AugmentOptions{}, train, device);
  step.start_epoch(0);
  step.select(0);
  const Batch batch = step.selected();
  torch::Tensor logits;
  const auto forward = [&] { logits = step.forward(batch.images); };
  const auto both = [&] {
    forward();
    step.backward(step.loss(logits, batch.labels));
  };
  const auto time = [&](const std::function<void()>& part) {
    return milliseconds_of(part, options, device);
  };
  const double augmentation = time([&] { step.selected(); }), forwards = time(forward),
               gradients = time(both), whole = time([&] { step.run(0, 0.01); });
  return {{"augmentation", augmentation},
          {"forward", forwards},
          {"backward", gradients - forwards},
          {"end", whole - gradients - augmentation},
          {"whole", whole}};
}

}  // namespace keel::lab
