#include "keel/scale.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void scale_backward(const T*, Matrices<const T>, const T*, Matrices<const T>, T*, T*, Matrices<T>,
                    Matrices<T>, const Stream&) {
  missing("keel::cuda::scale_backward");
}

#define KEEL_INSTANTIATE(T)                                                                     \
  template void scale_backward<T>(const T*, Matrices<const T>, const T*, Matrices<const T>, T*, \
                                  T*, Matrices<T>, Matrices<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
