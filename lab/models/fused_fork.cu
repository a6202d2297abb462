#include "lab/models/fused_fork_kernels.h"

#include <initializer_list>

#include "lab/models/fused_norm/pack.cuh"

namespace keel::lab::cuda {
namespace {

using Index = std::int64_t;

constexpr int kThreads = 256;

/// One pack per thread. The sum is rounded once, as torch's addition does it.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    fork_kernel(const T* through, const T* past, const T* output, Index packs, T* dL_dinput) {
#if __CUDA_ARCH__ >= 900
  // The layer's backward begins with a kernel that may start before this one is done. This one is
  // launched without such leave, so all before it are done (core/cuda/launch/early_start.cuh).
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const Index pack = Index(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const Index at = pack * V;
  const Pack<T, V> one = load<T, V>(through + at), gate = load<T, V>(output + at);
  float sum[V], y[V];
  one.unpack(sum);
  if (past != nullptr) {
    float more[V];
    load<T, V>(past + at).unpack(more);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += more[i];
  }
  gate.unpack(y);
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (y[i] <= 0) sum[i] = 0;  // NaN is an open gate
  store<T, V>(sum, dL_dinput + at);
}

template <typename T>
cudaError_t run(const ForkBackward& task, cudaStream_t stream) {
  constexpr int kPack = 16 / sizeof(T);
  const auto *const through = static_cast<const T*>(task.through),
                    *const past = static_cast<const T*>(task.past),
                    *const output = static_cast<const T*>(task.output);
  auto* const to = static_cast<T*>(task.dL_dinput);
  bool packed = task.count % kPack == 0;
  for (const void* each :
       {task.through, task.past, task.output, static_cast<const void*>(task.dL_dinput)})
    packed = packed && reinterpret_cast<std::uintptr_t>(each) % 16 == 0;  // null is, too
  const Index packs = packed ? task.count / kPack : task.count;
  const auto blocks = unsigned((packs + kThreads - 1) / kThreads);
  if (packed)
    fork_kernel<T, kPack><<<blocks, kThreads, 0, stream>>>(through, past, output, packs, to);
  else
    fork_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(through, past, output, packs, to);
  return cudaGetLastError();
}

}  // namespace

cudaError_t fork_backward(const ForkBackward& task, cudaStream_t stream) {
  if (task.count == 0) return cudaSuccess;
  return task.bfloat16 ? run<__nv_bfloat16>(task, stream) : run<float>(task, stream);
}

}  // namespace keel::lab::cuda
