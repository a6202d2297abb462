#include "cuda/eigh/block/hermitian.cuh"
#include "cuda/eigh/paths.h"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "instantiate.h"

namespace keel::cuda {

template <typename E>
void eigh_hermitian(Matrices<const E> matrices, RealOf<E>* values, Matrices<E> vectors,
                    EighOrder order, EighStatus* status, const Stream& stream) {
  by_block_size<E>(matrices.n, [&](auto size) {
    using T = RealOf<E>;
    constexpr int N = decltype(size)::value, kBytes = kBytesOfTeams<T, N, HermitianStorage<T, N>>;
    static_assert(kBytes == block_bytes<E>(N));
    const Scratch<T> stash("keel::eigh", stream, matrices.batch * HermitianStorage<T, N>::kStash);
    launch("keel::eigh", eigh_hermitian_kernel<T, N>,
           {.blocks = blocks_of_teams<T, N>(matrices.batch),
            .threads = Team<T, N>::kSize * kTeams<T, N>,
            .bytes = kBytes},
           stream, matrices, values, vectors, order, status, static_cast<T*>(stash));
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_hermitian, T)
KEEL_FOR_COMPLEX(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
