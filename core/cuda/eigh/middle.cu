#include "cuda/eigh/paths.h"

#include <algorithm>

#include "cuda/eigh/middle/finish.cuh"
#include "cuda/eigh/middle/join.cuh"
#include "cuda/eigh/middle/reduce.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "instantiate.h"

namespace keel::cuda {

namespace {

constexpr const char* kName = "keel::eigh";

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
                 EighStatus* status, EighWanted wanted, const Stream& stream) {
  constexpr int N = int(kLargestMiddle<T>);
  static_assert(std::max({sizeof(ReduceStorage<T, N>), sizeof(Storage<T, N / 2>),
                          sizeof(MergeStorage<T, N>), sizeof(FinishStorage<T, N>)}) ==
                kMiddleBytes<T>);
  const int n = int(matrices.n);
  constexpr int kPanel = Finisher<T, N>::kPanel;
  const int panels = (n + kPanel - 1) / kPanel;
  const Scratch<MiddleParts<T, N>> scratch(kName, stream, std::min(matrices.batch, kMiddleAtOnce));
  MiddleParts<T, N>* const parts = scratch;
  for (std::int64_t first = 0; first < matrices.batch; first += kMiddleAtOnce) {
    const std::int64_t count = std::min(kMiddleAtOnce, matrices.batch - first);
    queue<ReduceStorage<T, N>>(reduce_kernel<T, N>, count, Reducer<T, N>::kThreads, stream,
                               matrices, first, wanted, parts);
    queue<Storage<T, N / 2>>(halves_kernel<T, N>, 2 * count, Team<T, N / 2>::kSize, stream, n,
                             first, wanted, parts);
    queue<MergeStorage<T, N>>(join_kernel<T, N>, count, Team<T, N>::kSize, stream, n, first, wanted,
                              parts, values, order, status);
    queue<FinishStorage<T, N>>(finish_kernel<T, N>, panels * count, Finisher<T, N>::kThreads,
                               stream, panels, first, wanted, parts, vectors, order);
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_middle, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
