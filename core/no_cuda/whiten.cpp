#include "keel/whiten.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void whiten(const LayerMap&, Activations<const T>, const Accumulator<T>*, const Accumulator<T>*,
            const WhitenState<Accumulator<T>>&, const Destination<T>&, const Stream&) {
  missing("keel::cuda::whiten");
}

template <typename T>
void whiten_apply(const LayerMap&, Activations<const T>, const double*, const double*,
                  const Accumulator<T>*, const Accumulator<T>*, const WhitenState<Accumulator<T>>&,
                  const Destination<T>&, const Stream&) {
  missing("keel::cuda::whiten_apply");
}

template <typename T>
void whiten_backward(const LayerMap&, const SpectralRule&, Activations<const T>,
                     Activations<const T>, const Accumulator<T>*,
                     const WhitenState<const Accumulator<T>>&, const Destination<T>&,
                     Accumulator<T>*, Accumulator<T>*, const Stream&) {
  missing("keel::cuda::whiten_backward");
}

template <typename T>
void whiten_backward_sums(Activations<const T>, Activations<const T>,
                          const WhitenState<const Accumulator<T>>&, Accumulator<T>*,
                          Accumulator<T>*, Accumulator<T>*, const Stream&) {
  missing("keel::cuda::whiten_backward_sums");
}

template <typename T>
void whiten_backward_apply(const LayerMap&, const SpectralRule&, Activations<const T>,
                           Activations<const T>, const Accumulator<T>*,
                           const WhitenState<const Accumulator<T>>&, const Accumulator<T>*,
                           const double*, const Destination<T>&, const Stream&) {
  missing("keel::cuda::whiten_backward_apply");
}

#define KEEL_INSTANTIATE(T)                                                                        \
  template void whiten<T>(const LayerMap&, Activations<const T>, const Accumulator<T>*,            \
                          const Accumulator<T>*, const WhitenState<Accumulator<T>>&,               \
                          const Destination<T>&, const Stream&);                                   \
  template void whiten_apply<T>(const LayerMap&, Activations<const T>, const double*,              \
                                const double*, const Accumulator<T>*, const Accumulator<T>*,       \
                                const WhitenState<Accumulator<T>>&, const Destination<T>&,         \
                                const Stream&);                                                    \
  template void whiten_backward<T>(                                                                \
      const LayerMap&, const SpectralRule&, Activations<const T>, Activations<const T>,            \
      const Accumulator<T>*, const WhitenState<const Accumulator<T>>&, const Destination<T>&,      \
      Accumulator<T>*, Accumulator<T>*, const Stream&);                                            \
  template void whiten_backward_sums<T>(Activations<const T>, Activations<const T>,                \
                                        const WhitenState<const Accumulator<T>>&, Accumulator<T>*, \
                                        Accumulator<T>*, Accumulator<T>*, const Stream&);          \
  template void whiten_backward_apply<T>(                                                          \
      const LayerMap&, const SpectralRule&, Activations<const T>, Activations<const T>,            \
      const Accumulator<T>*, const WhitenState<const Accumulator<T>>&, const Accumulator<T>*,      \
      const double*, const Destination<T>&, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
