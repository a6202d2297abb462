#include "device.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace keel::ops {

bool has_cuda() { return true; }

bool capturing_on_cuda(const Tensor& tensor) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void on_cuda(const Tensor& tensor, const std::function<void(const Stream&)>& body) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const c10::cuda::CUDAGuard guard(tensor.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  body({stream,
        [stream](std::size_t bytes) { return allocator::raw_alloc_with_stream(bytes, stream); },
        [](void* memory) { allocator::raw_delete(memory); }});
}

}  // namespace keel::ops
