#pragma once

// The processes that train one network together.

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "keel/error.h"
#include "keel/torch/nn/process_group.h"
#include "lab/processes/collectives.h"
#include "lab/processes/heartbeat.h"
#include "lab/processes/place.h"

namespace keel::lab {

/// Another process is missing, silent, has failed or has different options. The message names it.
class ProcessError : public Error {
 public:
  using Error::Error;
};

struct JoinOptions {
  std::chrono::milliseconds timeout{300'000};
  /// Like Heartbeat::Options::lost. If empty, the message goes to stderr and the process ends with code 6.
  std::function<void(const std::string&)> lost;
};

/// The processes of a run, seen from one of them. Errors, except those of the constructor, are thrown on all processes
/// within the timeout and name the one to blame.
class Processes {
 public:
  /// Returns when all processes have joined and agree on their number. Throws ProcessError.
  Processes(const Place& place, const JoinOptions& options);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  std::int64_t process() const { return place_.process; }
  std::int64_t size() const { return place_.size; }
  std::int64_t local_rank() const { return place_.local_rank; }
  bool is_first() const { return process() == 0; }
  /// This process's part of `count` items, [begin, end). All parts are as equal as possible.
  std::pair<std::int64_t, std::int64_t> part_of(std::int64_t count) const;

  /// Throws ProcessError on all processes if the settings of one differ from rank 0's. The message names it and both
  /// values.
  void require_same(const nlohmann::json& settings);
  /// A barrier. Waits for as long as all processes are alive.
  void meet();

  /// Forms the group on this device. Required before sum() and the functions below it.
  void connect(torch::Device device);
  std::string backend() const { return collectives_->name(); }
  /// Sums in place, bitwise the same on all processes. On CUDA the work is queued.
  void sum(torch::Tensor& tensor);
  /// Replaces the tensor by rank 0's.
  void broadcast(torch::Tensor& tensor);
  std::unique_ptr<GradientSum> gradient_sum(const std::vector<torch::Tensor>& parameters);
  /// For layers that share their statistics.
  keel::nn::ProcessGroup group();
  /// For each entry, whether it is true on any process.
  std::vector<bool> any(const std::vector<bool>& here, torch::Device device);

  /// Publishes this process's progress, for the others' error messages.
  void at(std::int64_t step) { heart_->at(step), step_ = step; }
  Heartbeat& heart() { return *heart_; }

  /// Call it with an exception from a step. Throws ProcessError if another process caused it. Otherwise tells the
  /// others and rethrows.
  [[noreturn]] void explain(std::exception_ptr error);

 private:
  void join();
  void run(void (Collectives::*collective)(torch::Tensor&), torch::Tensor& tensor);
  [[noreturn]] void fail(const std::string& why);
  [[noreturn]] void fail_at_store(const std::string& what);

  Place place_;
  JoinOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Heartbeat> heart_;
  std::unique_ptr<Collectives> collectives_;
  std::int64_t meetings_ = 0, step_ = 0;
  std::atomic<bool> sum_failed_{false};
};

}  // namespace keel::lab
