// One of the processes that scripts/figures/scaling.py starts: times sums over all processes, in many sizes, and
// training steps. Rank 0 prints a JSON object.
//
//   RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 keel_bench_workers [IMAGES]
//
// IMAGES is the number of images per process and step (default 8). Every process has one thread.

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "keel/torch/threads.h"
#include "lab/models/batch_norm.h"
#include "lab/train/step.h"
#include "lab/train/stopwatch.h"

namespace keel::lab {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

json spread(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {{"median", seconds[seconds.size() / 2]},
          {"least", seconds.front()},
          {"most", seconds.back()},
          {"times", seconds.size()}};
}

/// Times sums of 64 B to 64 MiB, many of each, one after another.
json time_sums(Processes& processes) {
  json rows = json::array();
  for (std::int64_t bytes = 64; bytes <= 64 << 20; bytes *= 4) {
    torch::Tensor numbers = torch::zeros({bytes / 4}, torch::kFloat);
    const std::int64_t times = bytes <= 1 << 16 ? 200 : bytes <= 1 << 22 ? 40 : 12;
    std::vector<double> seconds;
    for (std::int64_t i = -3; i < times; ++i) {
      const auto start = Clock::now();
      processes.sum(numbers);
      if (i >= 0) seconds.push_back(seconds_since(start));
    }
    json row = spread(seconds);
    row["bytes"] = bytes;
    rows.push_back(row);
  }
  return rows;
}

struct Case {
  const char* name;
  const char* norm;
  bool sync_batchnorm;
};

/// Times whole steps. If `processes` is null, this process works alone.
json time_steps(Processes* processes, std::int64_t images, const Case& one) {
  TrainOptions options;
  options.model.norm.kind = one.norm;
  options.sync_batchnorm = one.sync_batchnorm;
  options.batch = images * (processes != nullptr ? processes->size() : 1);
  options.device = "cpu";
  torch::manual_seed(0);
  const Images data{torch::randint(0, 256, {options.batch, 3, 32, 32}, torch::kUInt8),
                    torch::randint(0, 10, {options.batch}, torch::kLong)};
  ResNet model(options.model);
  if (processes != nullptr) share_batches(*model, processes->group(), one.sync_batchnorm);
  TrainingStep step(model, data, AugmentOptions{}, options, torch::kCPU, processes);
  step.start_epoch(0);
  std::vector<double> seconds;
  for (int i = -2; i < 7; ++i) {
    if (processes != nullptr) processes->meet();
    const auto start = Clock::now();
    step.run(0, 0.01);
    if (i >= 0) seconds.push_back(seconds_since(start));
  }
  json row = spread(seconds);
  row["name"] = one.name;
  row["parameters"] = step.parameters().size();
  return row;
}

int run(std::int64_t images) {
  keel::use_all_cores(1);
  const auto place = place_from_environment();
  std::unique_ptr<Processes> processes;
  json result = {{"images", images}};
  if (place && place->size > 1) {
    processes = std::make_unique<Processes>(*place, JoinOptions{});
    processes->connect(torch::kCPU);
    result["sums"] = time_sums(*processes);
  }
  result["processes"] = processes ? processes->size() : 1;
  for (const Case& one : {Case{"batch, statistics of its own", "batch", false},
                          Case{"batch, shared statistics", "batch", true},
                          Case{"zca d=64, shared statistics", "zca", true}})
    result["steps"].push_back(time_steps(processes.get(), images, one));
  if (processes) processes->meet();
  if (!processes || processes->is_first()) std::printf("%s\n", result.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace keel::lab

int main(int count, char** arguments) try {
  return keel::lab::run(count > 1 ? std::atoll(arguments[1]) : 8);
} catch (const std::exception& error) {
  std::fprintf(stderr, "keel_bench_workers: %s\n", error.what());
  return 1;
}
