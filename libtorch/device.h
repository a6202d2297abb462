#pragma once

// Where an operator's kernel runs: one implementation for both devices, with the core's twins inside it.

#include <ATen/Parallel.h>

#include <functional>
#include <type_traits>

#include "keel/executor.h"
#include "keel/stream.h"
#include "types.h"

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "at::parallel_for is compiled here: without OpenMP it would silently use one thread"
#endif

namespace keel::ops {

/// LibTorch's own threads, so that keel obeys at::set_num_threads and adds no pool of its own.
inline Executor libtorch_threads() {
  return [](std::int64_t count, const std::function<void(std::int64_t)>& body) {
    at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    });
  };
}

/// Whether this build has kernels for CUDA tensors: KEEL_CUDA and a LibTorch with CUDA.
bool has_cuda();

/// Calls `body` with LibTorch's current stream on the tensor's device, which is the current device
/// meanwhile. Scratch memory comes from LibTorch's caching allocator, so all of it can be captured in a graph.
void on_cuda(const Tensor& tensor, const std::function<void(const Stream&)>& body);

/// Whether a graph is being captured from the current stream of the tensor's device.
bool capturing_on_cuda(const Tensor& tensor);

/// Whether the tensor's numbers can be looked at: not while a CUDA graph is captured, nor while torch.compile
/// traces, nor under vmap, whatever gradients are nested inside of it.
bool can_be_waited_for(const Tensor& tensor);

/// A stage's kernels on the CPU and on CUDA as one function of where to run and the stage's arguments.
#define KEEL_TWINS(...)                                                        \
  [](const auto& where, const auto&... arguments) {                            \
    if constexpr (std::is_same_v<std::decay_t<decltype(where)>, keel::Stream>) \
      keel::cuda::__VA_ARGS__(arguments..., where);                            \
    else                                                                       \
      keel::cpu::__VA_ARGS__(arguments..., where);                             \
  }

/// stage(where, arguments...) with where = the tensor's device: LibTorch's threads or stream.
template <typename Stage, typename... Arguments>
void on_device_of(const Tensor& tensor, const Stage& stage, const Arguments&... arguments) {
  if (!tensor.is_cuda()) return stage(libtorch_threads(), arguments...);
  const auto queue = [&](const Stream& stream) { stage(stream, arguments...); };
  on_cuda(tensor, std::ref(queue));
}

}  // namespace keel::ops
