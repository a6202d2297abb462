#include "keel/gradient_rule.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void eigh_backward(const GradientRule&, const T*, Matrices<const T>, const T*, Matrices<const T>,
                   Matrices<T>, const Stream&) {
  missing("keel::cuda::eigh_backward");
}

#define KEEL_INSTANTIATE(T)                                                                  \
  template void eigh_backward<T>(const GradientRule&, const T*, Matrices<const T>, const T*, \
                                 Matrices<const T>, Matrices<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
