#include "keel/affine.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void affine(Matrices<const Accumulator<T>>, const Accumulator<T>*, const Accumulator<T>*,
            Activations<const T>, Activations<T>, const Stream&) {
  missing("keel::cuda::affine");
}

template <typename T>
void affine_backward(Matrices<const Accumulator<T>>, Activations<const T>,
                     Matrices<const Accumulator<T>>, const Accumulator<T>*, Activations<const T>,
                     const Accumulator<T>*, Activations<T>, const Stream&) {
  missing("keel::cuda::affine_backward");
}

#define KEEL_INSTANTIATE(T)                                                                     \
  template void affine<T>(Matrices<const Accumulator<T>>, const Accumulator<T>*,                \
                          const Accumulator<T>*, Activations<const T>, Activations<T>,          \
                          const Stream&);                                                       \
  template void affine_backward<T>(Matrices<const Accumulator<T>>, Activations<const T>,        \
                                   Matrices<const Accumulator<T>>, const Accumulator<T>*,       \
                                   Activations<const T>, const Accumulator<T>*, Activations<T>, \
                                   const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
