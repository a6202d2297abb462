#include "cuda/eigh/block.cuh"
#include "cuda/eigh/large.h"
#include "cuda/eigh/middle.h"
#include "cuda/eigh/tiny.h"
#include "cuda/eigh/wide.h"
#include "cuda/launch/scratch.h"
#include "cuda/tiny/tile.cuh"
#include "keel/error.h"
#include "shape.h"

namespace keel::cuda {

template <typename T>
bool is_large(std::int64_t n) {
  return !fits_in_block<T, Storage>(n) && !is_middle<T>(n) && !is_wide<T>(n);
}

template <typename T>
void eigh(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Stream& stream) {
  check_eigh("keel::eigh", matrices, values, vectors);
  if (matrices.batch == 0) return;
  if (matrices.n == 0) {
    static_assert(sizeof(EighStatus) == 1 && int(EighStatus::converged) == 0);
    if (status != nullptr)
      check("keel::eigh", cudaMemsetAsync(status, 0, std::size_t(matrices.batch), native(stream)));
    return;
  }
  if (tiny::fits(matrices.n, matrices.batch))
    return eigh_tiny(matrices, values, vectors, order, status, stream);
  if (is_large<T>(matrices.n)) return eigh_large(matrices, values, vectors, order, status, stream);
  if (is_middle<T>(matrices.n))
    return eigh_middle(matrices, values, vectors, order, status, stream);
  if (!fits_in_block<T, Storage>(matrices.n))
    return eigh_wide(matrices, values, vectors, order, status, stream);
  by_team<T>(matrices.n, [&](auto size) {
    constexpr int N = decltype(size)::value, kBytes = kBytesOfTeams<T, N, Storage<T, N>>;
    static_assert(kBytes <= 227 * 1024);
    allow_shared_memory("keel::eigh", eigh_kernel<T, N>, kBytes);
    eigh_kernel<T, N><<<blocks_of_teams<T, N>(matrices.batch), Team<T, N>::kSize * kTeams<T, N>,
                        kBytes, native(stream)>>>(matrices, values, vectors, order, status);
  });
  check_launch("keel::eigh");
}

template bool is_large<float>(std::int64_t);
template bool is_large<double>(std::int64_t);
template void eigh(Matrices<const float>, float*, Matrices<float>, EighOrder, EighStatus*,
                   const Stream&);
template void eigh(Matrices<const double>, double*, Matrices<double>, EighOrder, EighStatus*,
                   const Stream&);

}  // namespace keel::cuda
