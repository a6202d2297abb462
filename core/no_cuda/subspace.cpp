#include "keel/subspace.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void subspace(const SubspaceMap&, Matrices<const T>, Matrices<T>, SubspaceState<T>, const Stream&) {
  missing("keel::cuda::subspace");
}

template <typename T>
void subspace_backward(const SubspaceMap&, const SpectralRule&, Matrices<const T>,
                       SubspaceState<const T>, Matrices<const T>, Matrices<T>, const Stream&) {
  missing("keel::cuda::subspace_backward");
}

#define KEEL_INSTANTIATE(T)                                                                       \
  template void subspace<T>(const SubspaceMap&, Matrices<const T>, Matrices<T>, SubspaceState<T>, \
                            const Stream&);                                                       \
  template void subspace_backward<T>(const SubspaceMap&, const SpectralRule&, Matrices<const T>,  \
                                     SubspaceState<const T>, Matrices<const T>, Matrices<T>,      \
                                     const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
