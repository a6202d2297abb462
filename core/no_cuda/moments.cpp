#include "keel/moments.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void partial_moments(Activations<const T>, const double*, double*, const Stream&) {
  missing("keel::cuda::partial_moments");
}

template <typename A>
void moments_from_partial(const double*, const double*, A*, Matrices<A>, const Stream&) {
  missing("keel::cuda::moments_from_partial");
}
template void moments_from_partial(const double*, const double*, float*, Matrices<float>,
                                   const Stream&);
template void moments_from_partial(const double*, const double*, double*, Matrices<double>,
                                   const Stream&);

template <typename T>
void moments(Activations<const T>, Accumulator<T>*, Matrices<Accumulator<T>>, const Stream&) {
  missing("keel::cuda::moments");
}

template <typename T>
void cross_moments(Activations<const T>, Activations<const T>, const Accumulator<T>*,
                   Accumulator<T>*, Matrices<Accumulator<T>>, const Stream&) {
  missing("keel::cuda::cross_moments");
}

#define KEEL_INSTANTIATE(T)                                                                        \
  template void partial_moments<T>(Activations<const T>, const double*, double*, const Stream&);   \
  template void moments<T>(Activations<const T>, Accumulator<T>*, Matrices<Accumulator<T>>,        \
                           const Stream&);                                                         \
  template void cross_moments<T>(Activations<const T>, Activations<const T>,                       \
                                 const Accumulator<T>*, Accumulator<T>*, Matrices<Accumulator<T>>, \
                                 const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
