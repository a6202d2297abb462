#include "cuda/activations/gate.h"
#include "cuda/launch/launch.h"

#include "cuda/activations/elements.cuh"
#include "cuda/activations/stage.cuh"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

/// NaN is an open gate.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(kThreads)
    apply_gate(const T* data, const T* gate, std::int64_t units, T* to) {
  using Unit = Pack<T, WIDTH>;
  await_previous();
  let_next_start();
  const std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= units) return;
  Unit unit = reinterpret_cast<const Unit*>(data)[at];
  const Unit by = reinterpret_cast<const Unit*>(gate)[at];
#pragma unroll
  for (int v = 0; v < WIDTH; ++v)
    if (widened(by.at[v]) <= 0) unit.at[v] = T{};
  reinterpret_cast<Unit*>(to)[at] = unit;
}

}  // namespace

template <typename T>
WithoutGate<T>::WithoutGate(const char* operation, const Activations<const T>& x,
                            const Stream& stream)
    : copy_(operation, stream, x.gate != nullptr ? x.samples() * x.channels : 0),
      view_(x.gated(nullptr)) {
  if (copy_ == nullptr) return;
  view_.data = copy_;
  constexpr int kWidth = kUnitWidth<T>;
  const std::int64_t count = x.samples() * x.channels;
  const auto run = [&](auto kernel, std::int64_t units) {
    launch(operation, kernel,
           {.blocks = unsigned(pieces<std::int64_t>(units, kThreads)),
            .threads = kThreads,
            .early = true},
           stream, x.data, x.gate, units, copy_);
  };
  if (count % kWidth == 0 && aligned(x.data, 16) && aligned(x.gate, 16))
    run(apply_gate<T, kWidth>, count / kWidth);
  else
    run(apply_gate<T, 1>, count);
}

template class WithoutGate<float>;
template class WithoutGate<double>;
template class WithoutGate<Half>;
template class WithoutGate<BFloat16>;

}  // namespace keel::cuda
