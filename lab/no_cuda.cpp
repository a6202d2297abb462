// For a LibTorch without CUDA, in place of train/graph_cuda.cpp.

#include "keel/error.h"
#include "lab/train/graph.h"

namespace keel::lab {

struct DeviceScope::Guards {};
DeviceScope::DeviceScope(torch::Device device) {
  require(device.is_cpu(),
          "expected device cpu, got " + device.str() + ": this LibTorch has no CUDA");
}
DeviceScope::~DeviceScope() = default;

Replay capture(const std::function<void()>&) {
  throw Error("this LibTorch has no CUDA, and so no graphs");
}
bool has_cuda() { return false; }
std::int64_t cuda_devices() { return 0; }
void synchronise(torch::Device) {}
std::string description(torch::Device device) { return device.str(); }
double peak_mib(torch::Device) { return 0; }
void reset_peak(torch::Device) {}

}  // namespace keel::lab
