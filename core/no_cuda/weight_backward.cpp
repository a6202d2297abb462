#include "keel/weight_backward.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void weight_backward(const T*, Matrices<const T>, const T*, Matrices<const T>, T*, T*, Matrices<T>,
                     Matrices<T>, const Stream&) {
  missing("keel::cuda::weight_backward");
}

#define KEEL_INSTANTIATE(T)                                                                      \
  template void weight_backward<T>(const T*, Matrices<const T>, const T*, Matrices<const T>, T*, \
                                   T*, Matrices<T>, Matrices<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
