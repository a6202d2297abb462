#include "lab/train/step.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace keel::lab {
namespace {

// LibTorch 2.4 replaced the per-device functions by ones that take the device.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool enabled(at::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
void enable(at::DeviceType device, bool on) { at::autocast::set_autocast_enabled(device, on); }
at::ScalarType type(at::DeviceType device) { return at::autocast::get_autocast_dtype(device); }
void set_type(at::DeviceType device, at::ScalarType type) {
  at::autocast::set_autocast_dtype(device, type);
}
#else
bool enabled(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
void enable(at::DeviceType device, bool on) {
  device == at::kCPU ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
}
at::ScalarType type(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::get_autocast_cpu_dtype()
                            : at::autocast::get_autocast_gpu_dtype();
}
void set_type(at::DeviceType device, at::ScalarType type) {
  device == at::kCPU ? at::autocast::set_autocast_cpu_dtype(type)
                     : at::autocast::set_autocast_gpu_dtype(type);
}
#endif

}  // namespace

Autocast::Autocast(torch::Device device, bool on)
    : device_(device.type()), was_on_(enabled(device_)), was_type_(type(device_)) {
  at::autocast::increment_nesting();
  enable(device_, on);
  if (on) set_type(device_, torch::kBFloat16);
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  enable(device_, was_on_);
  set_type(device_, was_type_);
}

}  // namespace keel::lab
