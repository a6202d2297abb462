#include "keel/eigh.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void eigh(Matrices<const T>, T*, Matrices<T>, EighOrder, EighStatus*, const Stream&) {
  missing("keel::cuda::eigh");
}

#define KEEL_INSTANTIATE(T) \
  template void eigh<T>(Matrices<const T>, T*, Matrices<T>, EighOrder, EighStatus*, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
