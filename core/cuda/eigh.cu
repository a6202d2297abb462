#include "cuda/eigh/block/decompose.cuh"
#include "cuda/eigh/paths.h"
#include "cuda/launch/cusolver.h"
#include "cuda/plan.h"
#include "instantiate.h"
#include "keel/error.h"
#include "shape.h"

namespace keel::cuda {

template <typename T>
static void eigh_in_block(Matrices<const T> matrices, T* values, Matrices<T> vectors,
                          EighOrder order, EighStatus* status, const Stream& stream) {
  by_block_size<T>(matrices.n, [&](auto size) {
    constexpr int N = decltype(size)::value, kBytes = kBytesOfTeams<T, N, Storage<T, N>>;
    static_assert(kBytes == block_bytes<T>(N));
    launch("keel::eigh", eigh_kernel<T, N>,
           {.blocks = blocks_of_teams<T, N>(matrices.batch),
            .threads = Team<T, N>::kSize * kTeams<T, N>,
            .bytes = kBytes},
           stream, matrices, values, vectors, order, status);
  });
}

template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Stream& stream) {
  check_eigh("keel::eigh", matrices, values, vectors);
  if (matrices.batch == 0) return;
  if (matrices.n == 0) {
    static_assert(sizeof(EighStatus) == 1 && int(EighStatus::converged) == 0);
    if (status != nullptr)
      check("keel::eigh", cudaMemsetAsync(status, 0, std::size_t(matrices.batch), native(stream)));
    return;
  }
  const EighPath path = eigh_path<T>(matrices.n, matrices.batch, this_card());
  if constexpr (kIsComplex<T>) {
    if (path == EighPath::block)
      return eigh_hermitian(matrices, values, vectors, order, status, stream);
    return eigh_cusolver(matrices, values, vectors, order, status, stream);
  } else {
    switch (path) {
      case EighPath::tiny:
        return eigh_tiny(matrices, values, vectors, order, status, stream);
      case EighPath::block:
        return eigh_in_block(matrices, values, vectors, order, status, stream);
      case EighPath::middle:
        return eigh_middle(matrices, values, vectors, order, status, stream);
      case EighPath::wide:
        return eigh_wide(matrices, values, vectors, order, status, stream);
      case EighPath::cusolver:
        return eigh_cusolver(matrices, values, vectors, order, status, stream);
    }
  }
}

template <typename T>
void eigvalsh(Matrices<const T> matrices, RealOf<T>* values, EighOrder order, EighStatus* status,
              const Stream& stream) {
  constexpr const char* kName = "keel::eigvalsh";
  require_given(kName, "matrices", matrices);
  require_numbers(kName, "values", values, matrices.batch * matrices.n);
  const std::int64_t n = matrices.n;
  const bool by_cusolver = kIsComplex<T>
                               ? eigh_path<T>(n, matrices.batch, this_card()) == EighPath::cusolver
                               : n >= kLeastValuesAlone && !is_capturing(kName, stream);
  if (matrices.batch > 0 && by_cusolver)
    return eigh_cusolver(matrices, values, Matrices<T>{}, order, status, stream);
  const Scratch<T> vectors(kName, stream, matrices.batch * n * n);
  eigh(matrices, values, contiguous<T>(vectors, matrices.batch, n), order, status, stream);
}

#define KEEL_STAGES(T) \
  KEEL_STAGE(eigh, T)  \
  KEEL_STAGE(eigvalsh, T)
KEEL_FOR_REAL(KEEL_STAGES)
KEEL_FOR_COMPLEX(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
