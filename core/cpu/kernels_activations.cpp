// Compiled once per instruction set, like kernels.cpp.

#include "activation_kernels.h"
#include "affine_kernels.h"
#include "moments_kernels.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
constexpr ActivationKernels<T> activation_kernels_of() {
  return {kLanes<Accumulator<T>>, kMomentsTile, moments_scratch<T>, moments<T>, kAffineTile,
          affine_scratch<T>,      affine<T>};
}

#define KEEL_DEFINE(T)                               \
  extern const ActivationKernels<T> kActivations##T; \
  const ActivationKernels<T> kActivations##T = activation_kernels_of<T>();
KEEL_DEFINE(float)
KEEL_DEFINE(double)
KEEL_DEFINE(Half)
KEEL_DEFINE(BFloat16)
#undef KEEL_DEFINE

}  // namespace keel::cpu::KEEL_ISA
