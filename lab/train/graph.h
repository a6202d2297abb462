#pragma once

// CUDA graphs, streams and device queries. Implemented in graph_cuda.cpp if LibTorch has CUDA, otherwise in
// lab/no_cuda.cpp.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace keel::lab {

/// Captures `step` without running it. `step` must have run a few times in the same DeviceScope, and must neither
/// synchronise nor copy from the host. What is returned queues the whole sequence of operations, on the same memory, in
/// that DeviceScope.
using Replay = std::function<void()>;
Replay capture(const std::function<void()>& step);

/// Scope in which work runs on this device, on its own stream. (Graphs cannot be captured on the default stream.)
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

bool has_cuda();  ///< whether a usable device is present now
std::int64_t cuda_devices();
void synchronise(torch::Device device);
std::string description(torch::Device device);  ///< "cpu", or the GPU's name
double peak_mib(torch::Device device);          ///< peak allocation since reset_peak; CPU: 0
void reset_peak(torch::Device device);

}  // namespace keel::lab
