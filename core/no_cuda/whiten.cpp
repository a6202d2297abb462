#include "keel/whiten.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void whiten(const SubspaceMap&, Activations<const T>, const Accumulator<T>*, const Accumulator<T>*,
            const WhitenState<Accumulator<T>>&, const Destination<T>&, const Stream&) {
  missing("keel::cuda::whiten");
}

template <typename T>
void whiten_backward(const SubspaceMap&, const SpectralRule&, Activations<const T>,
                     Activations<const T>, const Accumulator<T>*,
                     const WhitenState<const Accumulator<T>>&, const Destination<T>&,
                     Accumulator<T>*, Accumulator<T>*, const Stream&) {
  missing("keel::cuda::whiten_backward");
}

#define KEEL_INSTANTIATE(T)                                                                   \
  template void whiten<T>(const SubspaceMap&, Activations<const T>, const Accumulator<T>*,    \
                          const Accumulator<T>*, const WhitenState<Accumulator<T>>&,          \
                          const Destination<T>&, const Stream&);                              \
  template void whiten_backward<T>(                                                           \
      const SubspaceMap&, const SpectralRule&, Activations<const T>, Activations<const T>,    \
      const Accumulator<T>*, const WhitenState<const Accumulator<T>>&, const Destination<T>&, \
      Accumulator<T>*, Accumulator<T>*, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
