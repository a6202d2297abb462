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

/// Another process is missing, silent, at fault or of another mind. The message names it.
class ProcessError : public Error {
 public:
  using Error::Error;
};

struct JoinOptions {
  std::chrono::milliseconds timeout{300'000};
  /// As Heartbeat::Options::lost. Empty: the message goes to stderr and the process ends with code 6.
  std::function<void(const std::string&)> lost;
};

/// A run's processes, as one of them sees the others. Everything but the constructor's errors is thrown
/// on all of them within the timeout, and names who is to blame.
class Processes {
 public:
  /// Returns when all have come, and agree on how many they are. Throws ProcessError.
  Processes(const Place& place, const JoinOptions& options);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  std::int64_t process() const { return place_.process; }
  std::int64_t size() const { return place_.size; }
  std::int64_t local_rank() const { return place_.local_rank; }
  bool is_first() const { return process() == 0; }
  /// This process's part of `count` things: [begin, end), all parts as even as can be.
  std::pair<std::int64_t, std::int64_t> part_of(std::int64_t count) const;

  /// Throws ProcessError on all where one was told something else than process 0, naming it and both.
  void require_same(const nlohmann::json& settings);
  /// Returns when all have come here. However long that takes, as long as all of them live.
  void meet();

  /// Forms the group on this device. sum() and those below it ask for this.
  void connect(torch::Device device);
  std::string backend() const { return collectives_->name(); }
  /// In place, the same on all to the last bit. CUDA: queued.
  void sum(torch::Tensor& tensor);
  /// Replaces the tensor by process 0's.
  void broadcast(torch::Tensor& tensor);
  std::unique_ptr<GradientSum> gradient_sum(const std::vector<torch::Tensor>& parameters);
  /// For layers that share their statistics.
  keel::nn::ProcessGroup group();
  /// Whether any process says so.
  std::vector<bool> any(const std::vector<bool>& here, torch::Device device);

  /// Where this process stands, for the others' errors.
  void at(std::int64_t step) { heart_->at(step), step_ = step; }
  Heartbeat& heart() { return *heart_; }

  /// Called with what a step threw: throws ProcessError if another process is behind it; otherwise
  /// tells the others, and throws it again.
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
