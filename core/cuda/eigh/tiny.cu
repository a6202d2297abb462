#include "cuda/eigh/paths.h"

#include "cuda/matrix/tiny.cuh"
#include "formulas/eigh_one_thread.h"
#include "formulas/order.h"
#include "instantiate.h"

namespace keel::cuda {
namespace {

template <typename T, int N>
__global__ void __launch_bounds__(tiny::kThreads)
    tiny_kernel(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                EighStatus* status) {
  __shared__ tiny::Tile<T, N, N> matrix;
  __shared__ tiny::Tile<T, 1, N> value;
  const tiny::Share share(matrices.batch);
  matrix.fetch(share, tiny::rectangles(matrices));  // the upper triangle is not used
  __syncthreads();
  if (share.has_one()) {
    const OneThreadEigh<T, N> solved([&](int i, int j) { return matrix(i, j); });
    // Each thread has its own place in the tile, so it may overwrite what it has read.
    solved.give([&](int place, T x) { value(0, place_in(order, N, place)) = x; },
                [&](int i, int place, T x) { matrix(i, place_in(order, N, place)) = x; });
    if (status != nullptr)
      status[share.index()] = solved.finite() ? EighStatus::converged : EighStatus::not_finite;
  }
  __syncthreads();
  value.put(share, tiny::rows_of(values, matrices.batch, N));
  matrix.put(share, tiny::rectangles(vectors));
}

}  // namespace

template <typename T>
void eigh_tiny(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream) {
  by_tiny_size(matrices.n, [&](auto size) {
    tiny::launch("keel::eigh", tiny_kernel<T, decltype(size)::value>, matrices.batch, stream,
                 matrices, values, vectors, order, status);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_tiny, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
