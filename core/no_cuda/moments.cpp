#include "keel/moments.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void partial_moments(Activations<const T>, PartialMoments&, const Stream&) {
  missing("keel::cuda::partial_moments");
}

template <typename T>
void moments(Activations<const T>, Accumulator<T>*, Matrices<Accumulator<T>>, const Stream&) {
  missing("keel::cuda::moments");
}

template <typename T>
void moments_backward(Activations<const T>, const Accumulator<T>*, const Accumulator<T>*,
                      Matrices<const Accumulator<T>>, Activations<T>, const Stream&) {
  missing("keel::cuda::moments_backward");
}

template <typename T>
void cross_moments(Activations<const T>, Activations<const T>, const Accumulator<T>*,
                   Accumulator<T>*, Matrices<Accumulator<T>>, const Stream&) {
  missing("keel::cuda::cross_moments");
}

#define KEEL_INSTANTIATE(T)                                                                        \
  template void partial_moments<T>(Activations<const T>, PartialMoments&, const Stream&);          \
  template void moments<T>(Activations<const T>, Accumulator<T>*, Matrices<Accumulator<T>>,        \
                           const Stream&);                                                         \
  template void moments_backward<T>(Activations<const T>, const Accumulator<T>*,                   \
                                    const Accumulator<T>*, Matrices<const Accumulator<T>>,         \
                                    Activations<T>, const Stream&);                                \
  template void cross_moments<T>(Activations<const T>, Activations<const T>,                       \
                                 const Accumulator<T>*, Accumulator<T>*, Matrices<Accumulator<T>>, \
                                 const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
