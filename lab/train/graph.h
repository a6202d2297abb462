#pragma once

// What a training run asks of its device beyond tensors. graph_cuda.cpp where LibTorch has CUDA,
// graph_none.cpp elsewhere.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace keel::lab {

/// A recorded sequence of operations on fixed memory.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  /// Queues the whole sequence. Call it under the DeviceScope it was captured in.
  virtual void replay() = 0;
};

/// Records what `step` does without doing it. `step` must have run a few times before, in the same
/// DeviceScope, and must neither wait for the device nor copy from the host. `watched`: other threads
/// of this process ask the device for its state meanwhile, as NCCL's do.
std::unique_ptr<StepGraph> capture(const std::function<void()>& step, bool watched = false);

/// While it lives, work goes to this device, on a stream of its own (graphs are not captured on the
/// default one).
class DeviceScope {
 public:
  explicit DeviceScope(torch::Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

bool has_cuda();  ///< a usable one, now
std::int64_t cuda_devices();
void synchronise(torch::Device device);
std::string description(torch::Device device);  ///< "cpu", or the GPU's name
double peak_mib(torch::Device device);          ///< allocated at most since reset_peak; CPU: 0
void reset_peak(torch::Device device);

}  // namespace keel::lab
