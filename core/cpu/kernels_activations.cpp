// Compiled once per instruction set, like kernels.cpp.

#include "activation_kernels.h"
#include "affine_kernels.h"
#include "moments_kernels.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
const ActivationKernels<T>& activation_kernels() {
  static constexpr ActivationKernels<T> table{kLanes<Accumulator<T>>,
                                              kMomentsTile,
                                              moments_scratch<T>,
                                              moments<T>,
                                              kAffineTile,
                                              kSampleTile,
                                              affine_scratch<T>,
                                              affine<T>};
  return table;
}
template const ActivationKernels<float>& activation_kernels();
template const ActivationKernels<double>& activation_kernels();
template const ActivationKernels<Half>& activation_kernels();
template const ActivationKernels<BFloat16>& activation_kernels();

}  // namespace keel::cpu::KEEL_ISA
