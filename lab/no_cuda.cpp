// For a LibTorch without CUDA, in place of train/graph_cuda.cpp and models/weight_gradients_cuda.cpp.

#include "keel/error.h"
#include "lab/models/weight_gradients.h"
#include "lab/train/graph.h"

namespace keel::lab {

struct DeviceScope::Guards {};
DeviceScope::DeviceScope(torch::Device device) {
  require(device.is_cpu(),
          "keel::lab: expected device cpu, got " + device.str() + ": this LibTorch has no CUDA");
}
DeviceScope::~DeviceScope() = default;

std::unique_ptr<StepGraph> capture(const std::function<void()>&) {
  throw Error("keel::lab::capture: this LibTorch has no CUDA, and so no graphs");
}
std::function<void()> run_beside(const std::function<void()>& work) {
  work();
  return [] {};
}
bool has_cuda() { return false; }
std::int64_t cuda_devices() { return 0; }
void synchronise(torch::Device) {}
std::string description(torch::Device device) { return device.str(); }
double peak_mib(torch::Device) { return 0; }
void reset_peak(torch::Device) {}

std::shared_ptr<WeightGradients> make_weight_gradients() { return nullptr; }

}  // namespace keel::lab
