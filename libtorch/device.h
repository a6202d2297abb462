#pragma once

// Runs one kernel on both devices: it calls the core's CPU or CUDA function.

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

/// Ends the call with an error if the interpreter that made it has been interrupted (threads.cpp).
void stop_if_interrupted();

/// LibTorch's thread pool, so that keel obeys at::set_num_threads and adds no pool of its own.
inline Executor libtorch_threads() {
  return [](std::int64_t count, const std::function<void(std::int64_t)>& body) {
    at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        stop_if_interrupted();
        body(i);
      }
    });
  };
}

/// Whether this build has kernels for CUDA tensors, which takes KEEL_CUDA and a LibTorch with CUDA.
bool has_cuda();

/// Calls `body` with LibTorch's current stream on the tensor's device, which is the current device during the call.
/// Scratch memory comes from LibTorch's caching allocator, so the call can be captured in a CUDA graph.
void on_cuda(const Tensor& tensor, const std::function<void(const Stream&)>& body);

/// Whether the current stream of the tensor's device is being captured into a CUDA graph.
bool capturing_on_cuda(const Tensor& tensor);

/// Whether the host can read the tensor's values. It cannot during CUDA graph capture, while torch.compile traces, or
/// under vmap, even if gradient transforms are nested inside it.
bool can_read_values(const Tensor& tensor);

/// The core's CPU and CUDA versions of a stage as one function of where to run and the stage's arguments.
#define KEEL_STAGE(...)                                                        \
  [](const auto& where, const auto&... arguments) {                            \
    if constexpr (std::is_same_v<std::decay_t<decltype(where)>, keel::Stream>) \
      keel::cuda::__VA_ARGS__(arguments..., where);                            \
    else                                                                       \
      keel::cpu::__VA_ARGS__(arguments..., where);                             \
  }

/// Calls stage(where, arguments...), where `where` is LibTorch's thread pool or the tensor's current CUDA stream.
template <typename Stage, typename... Arguments>
void on_device_of(const Tensor& tensor, const Stage& stage, const Arguments&... arguments) {
  if (!tensor.is_cuda()) return stage(libtorch_threads(), arguments...);
  const auto queue = [&](const Stream& stream) { stage(stream, arguments...); };
  on_cuda(tensor, std::ref(queue));
}

}  // namespace keel::ops
