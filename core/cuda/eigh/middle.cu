#include "cuda/eigh/paths.h"

#include <algorithm>

#include "cuda/eigh/middle/finish.cuh"
#include "cuda/eigh/middle/join.cuh"
#include "cuda/eigh/middle/reduce.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"

namespace keel::cuda {

namespace {

constexpr const char* kName = "keel::eigh";

/// Matrices in flight at once: each needs memory of 1.6 times its size, and 132 fill the GPU.
constexpr std::int64_t kAtOnce = 528;

template <typename STORAGE, typename... Parameters>
void queue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, const Stream& stream,
           const std::type_identity_t<Parameters>&... arguments) {
  launch(kName, kernel,
         {.blocks = unsigned(blocks), .threads = unsigned(threads), .bytes = sizeof(STORAGE)},
         stream, arguments...);
}

}  // namespace

template <typename T>
void eigh_middle(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                 EighStatus* status, const Stream& stream) {
  constexpr int N = int(kLargestMiddle<T>);
  static_assert(std::max({sizeof(ReduceStorage<T, N>), sizeof(Storage<T, N / 2>),
                          sizeof(MergeStorage<T, N>), sizeof(FinishStorage<T, N>)}) ==
                kMiddleBytes<T>);
  const int n = int(matrices.n);
  constexpr int kPanel = Finisher<T, N>::kPanel;
  const int panels = (n + kPanel - 1) / kPanel;
  const Scratch<MiddleParts<T, N>> scratch(kName, stream, std::min(matrices.batch, kAtOnce));
  MiddleParts<T, N>* const parts = scratch;
  for (std::int64_t first = 0; first < matrices.batch; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, matrices.batch - first);
    queue<ReduceStorage<T, N>>(reduce_kernel<T, N>, count, Reducer<T, N>::kThreads, stream,
                               matrices, first, parts);
    queue<Storage<T, N / 2>>(halves_kernel<T, N>, 2 * count, Team<T, N / 2>::kSize, stream, n,
                             parts);
    queue<MergeStorage<T, N>>(join_kernel<T, N>, count, Team<T, N>::kSize, stream, n, first, parts,
                              values, order, status);
    queue<FinishStorage<T, N>>(finish_kernel<T, N>, panels * count, Finisher<T, N>::kThreads,
                               stream, panels, first, parts, vectors, order);
  }
}

template void eigh_middle(Matrices<const float>, float*, Matrices<float>, EighOrder, EighStatus*,
                          const Stream&);
template void eigh_middle(Matrices<const double>, double*, Matrices<double>, EighOrder, EighStatus*,
                          const Stream&);

}  // namespace keel::cuda
