#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/train/step.h"
#include "lab/train/trainer.h"
#include "support/errors.h"
#include "support/files.h"

namespace keel::lab::test {

using keel::testing::error_of;
using keel::testing::TemporaryFolder;

/// Lets this process allocate this much more, and then no more. For the child of a death test.
inline void allow_more_memory(std::size_t bytes) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::size_t kilobytes = 0; word == "VmData:" && status >> kilobytes) {
      const rlimit limit{1024 * kilobytes + bytes, RLIM_INFINITY};
      if (::setrlimit(RLIMIT_DATA, &limit) == 0) return;
    }
  throw std::runtime_error("cannot limit the memory");
}

/// Small noisy images whose class shows in brightness and stripes. A few steps learn them, but never perfectly.
inline DataSet small_data(std::int64_t train = 96, std::int64_t test = 40,
                          std::int64_t classes = 4) {
  const auto images = [classes](std::int64_t count, std::uint64_t seed) {
    auto generator = at::detail::createCPUGenerator(seed);
    const auto labels = torch::arange(count, torch::kLong).remainder(classes);
    auto pixels = torch::randint(0, 120, {count, 3, 8, 8}, generator, torch::kFloat);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto label = labels[i].item<std::int64_t>();
      pixels[i].add_(double(20 * label));
      pixels[i][label % 3].slice(0, 0, 8, 2).add_(50);
    }
    return Images{pixels.to(torch::kUInt8), labels};
  };
  DataSet data{.name = "small",
               .classes = {},
               .train = images(train, 1),
               .test = images(test, 2),
               .mean = {0.4, 0.4, 0.4},
               .deviation = {0.2, 0.2, 0.2}};
  for (std::int64_t i = 0; i < classes; ++i) data.classes.push_back("class " + std::to_string(i));
  return data;
}

inline TrainOptions small_options(const std::string& norm = "batch") {
  TrainOptions options;
  options.model.name = "resnet_small";
  options.model.width = 4;
  options.model.classes = 4;
  options.model.norm.kind = norm;
  options.data.size = 8;
  options.batch = 16;
  options.epochs = 2;
  options.device = "cpu";
  options.log_every = 1;
  options.recalibrate = 0;
  options.threads = 1;  // more would wait for each other on images this small
  options.seed = 7;
  return options;
}

/// A TrainingStep on small data, before its first step.
inline TrainingStep training_of(const TrainOptions& options, const DataSet& data = small_data()) {
  torch::manual_seed(options.seed);
  TrainingStep training(ResNet(options.model), data.train, augment_options(data, 0), options,
                        torch::kCPU);
  training.start_epoch(0);
  training.select(0);
  return training;
}

/// Records all events.
struct Recorder : Observer {
  RunInfo info;
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
  std::vector<Failure> failures;
  std::vector<std::string> messages;
  std::vector<std::int64_t> layers;
  LayerState layer;
  int starts = 0, finishes = 0;

  void on_start(const RunInfo& told) override { info = told, ++starts; }
  void on_step(const StepRecord& record) override { steps.push_back(record); }
  void on_epoch(const EpochRecord& record) override { epochs.push_back(record); }
  void on_layer(const LayerState& state, std::int64_t step) override {
    layer = state;
    layers.push_back(step);
  }
  void on_failure(const Failure& failure) override { failures.push_back(failure); }
  void on_message(const std::string& text) override { messages.push_back(text); }
  void on_finish(const Result&) override { ++finishes; }
};

/// Sends a signal to its own process after a step, as a user or a scheduler would.
struct Interrupter : Recorder {
  std::int64_t at;
  int signal;
  explicit Interrupter(std::int64_t step, int number = SIGTERM) : at(step), signal(number) {
    if (number != 0) std::signal(number, SIG_DFL);  // a script's background ignores SIGINT
  }
  void on_step(const StepRecord& record) override {
    Recorder::on_step(record);
    if (record.step == at) std::raise(signal);
  }
};

/// The same steps with the same losses, gradients and gaps, to the last bit.
inline void expect_same_steps(const Recorder& one, const Recorder& other, const std::string& what) {
  ASSERT_EQ(one.steps.size(), other.steps.size()) << what;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].step, other.steps[i].step) << what << " " << i;
    EXPECT_EQ(one.steps[i].loss, other.steps[i].loss) << what << " " << i;
    EXPECT_EQ(one.steps[i].gradient_norm_layer, other.steps[i].gradient_norm_layer) << what << i;
    if (one.steps[i].rank > 0) {
      EXPECT_EQ(one.steps[i].smallest_gap, other.steps[i].smallest_gap) << what << " " << i;
    }
  }
}

}  // namespace keel::lab::test
