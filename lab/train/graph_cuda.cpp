#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>

#include "lab/train/graph.h"

namespace keel::lab {
namespace {

c10::DeviceIndex index_of(torch::Device device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

}  // namespace

struct DeviceScope::Guards {
  explicit Guards(torch::Device given)
      : device(torch::Device(torch::kCUDA, index_of(given))),
        stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index_of(given))) {}
  c10::cuda::CUDAGuard device;
  c10::cuda::CUDAStreamGuard stream;
};

DeviceScope::DeviceScope(torch::Device device) {
  if (!device.is_cuda()) return;
  synchronise(device);  // work on other streams must finish before ours starts
  guards_ = std::make_unique<Guards>(device);
}
DeviceScope::~DeviceScope() {
  if (!guards_) return;
  try {
    c10::cuda::getCurrentCUDAStream().synchronize();
  } catch (const std::exception&) {  // the device's error has already been thrown elsewhere
  }
}

Replay capture(const std::function<void()>& step) {
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  c10::cuda::getCurrentCUDAStream().synchronize();
  graph->capture_begin();
  step();
  graph->capture_end();
  return [graph] { graph->replay(); };
}

bool has_cuda() { return torch::cuda::is_available(); }
std::int64_t cuda_devices() { return std::int64_t(torch::cuda::device_count()); }

void synchronise(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(index_of(device));
}

std::string description(torch::Device device) {
  return device.is_cuda() ? at::cuda::getDeviceProperties(index_of(device))->name : device.str();
}

double peak_mib(torch::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_of(device));
  return double(stats.allocated_bytes[0].peak) / (1 << 20);  // [0]: over all pools
}

void reset_peak(torch::Device device) {
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(index_of(device));
}

}  // namespace keel::lab
