#include "device.h"

namespace keel::ops {

bool has_cuda() { return false; }

bool capturing_on_cuda(const Tensor&) { return false; }

void on_cuda(const Tensor& tensor, const std::function<void(const Stream&)>&) {
  TORCH_CHECK(false, "keel: expected a tensor on the CPU, got one on ", tensor.device(),
              ": this build of keel has no CUDA kernels (docs/install.md)");
}

}  // namespace keel::ops
