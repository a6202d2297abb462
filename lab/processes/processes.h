#pragma once

// The processes that train one network together. torchrun, or another launcher that sets its variables, starts them, and
// c10d connects them: a TCPStore, and Gloo on CPUs or NCCL on GPUs.

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/error.h"
#include "keel/torch/nn/process_group.h"

namespace keel::lab {

/// This process's place in a run, from the environment variables of torchrun.
struct Place {
  std::int64_t process = 0, size = 1;  ///< RANK, WORLD_SIZE
  std::int64_t local_rank = 0;         ///< LOCAL_RANK; on this machine, selects the GPU
  std::string address;                 ///< MASTER_ADDR
  int port = 0;                        ///< MASTER_PORT
  /// torchrun's agent keeps the store (TORCHELASTIC_USE_AGENT_STORE); otherwise process 0 does.
  bool store_is_kept = false;
  std::string attempt;  ///< TORCHELASTIC_RESTART_COUNT; separates the keys of restarts
};

/// Returns nothing if neither RANK nor WORLD_SIZE is set. Throws keel::Error that names a missing or invalid variable.
std::optional<Place> place_from_environment();

/// The others cannot be reached, or one of them has different options.
class ProcessError : public Error {
 public:
  using Error::Error;
};

/// A group of c10d. All processes must make the same calls in the same order.
class Group {
 public:
  virtual ~Group() = default;
  virtual void sum(torch::Tensor& tensor) = 0;
  virtual void broadcast(torch::Tensor& tensor) = 0;  ///< process 0's
  virtual std::string name() const = 0;               ///< gloo, nccl
};
/// Waits for the others, at most for the timeout. Throws if this build lacks what the device needs.
std::unique_ptr<Group> connect(const Place& place, torch::Device device,
                               std::chrono::milliseconds timeout);

/// The processes of a run, seen from one of them.
class Processes {
 public:
  /// Returns when all processes have joined. Throws ProcessError.
  Processes(const Place& place, torch::Device device, std::chrono::milliseconds timeout);

  std::int64_t process() const { return place_.process; }
  std::int64_t size() const { return place_.size; }
  bool is_first() const { return process() == 0; }
  torch::Device device() const { return device_; }
  std::string backend() const { return group_->name(); }
  /// This process's part of `count` items, [begin, end). All parts are as equal as possible.
  std::pair<std::int64_t, std::int64_t> part_of(std::int64_t count) const;

  /// Sums in place, bitwise the same on all processes. On CUDA the work is queued. Throws ProcessError if another process
  /// ended or does not answer within the timeout; on CUDA, c10d's watchdog then ends this process.
  void sum(torch::Tensor& tensor);
  /// Replaces the tensor by process 0's.
  void broadcast(torch::Tensor& tensor);
  /// For each entry, whether it is true on any process.
  std::vector<bool> any(const std::vector<bool>& here);
  /// A barrier.
  void meet() { any({true}); }
  /// Throws ProcessError on all processes if the settings of one differ from process 0's. Its own error names the option and
  /// both values.
  void require_same(const nlohmann::json& settings);
  /// For layers that share their statistics.
  keel::nn::ProcessGroup group();

  /// The error of sum() or broadcast(), empty if there was none. What the caller catches may be another one, because it
  /// went through a layer and autograd.
  const std::string& broken() const { return broken_; }

 private:
  void run(void (Group::*collective)(torch::Tensor&), torch::Tensor& tensor);

  Place place_;
  torch::Device device_;
  std::unique_ptr<Group> group_;
  std::string broken_;
};

}  // namespace keel::lab
