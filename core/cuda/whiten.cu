#include "keel/whiten.h"

#include "activations_check.h"
#include "cuda/launch/scratch.h"
#include "cuda/whiten/stages.h"
#include "keel/moments.h"

namespace keel::cuda {

template <typename T>
void whiten(const SubspaceMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& destination, const Stream& stream) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::cuda::whiten";
  require_valid(kOperation, "input", input);
  require_per_group(kOperation, "covariance", input, state.covariance);
  require_per_group(kOperation, "subspace", input, state.subspace);
  require_per_group(kOperation, "vectors", input, state.spectrum.vectors);
  const std::int64_t groups = input.groups, d = input.group_size();
  Scratch<A> scaled(kOperation, stream, weight != nullptr ? groups * d * d : 0);
  const Matrices<A> matrix = weight != nullptr ? contiguous<A>(scaled, groups, d) : Matrices<A>{};
  moments<T>(input, state.mean, state.covariance, stream);
  subspace_and_matrix<A>(map, state.covariance, weight, state.subspace, matrix, state.spectrum,
                         stream);
  const Activations<T> output = destination.get();
  require_same_shape(kOperation, "output", input, output);
  affine_about_mean<T>(matrix ? matrix : state.subspace, state.mean, state.covariance, bias, input,
                       output, stream);
}

template <typename T>
void whiten_backward(const SubspaceMap& map, const SpectralRule& rule,
                     Activations<const T> dL_doutput, Activations<const T> input,
                     const Accumulator<T>* weight, const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& destination, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Stream& stream) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::cuda::whiten_backward";
  require_valid(kOperation, "dL_doutput", dL_doutput);
  require_same_shape(kOperation, "input", dL_doutput, input);
  require_per_group(kOperation, "covariance", input, state.covariance);
  require_per_group(kOperation, "subspace", input, state.subspace);
  require_per_group(kOperation, "vectors", input, state.spectrum.vectors);
  const std::int64_t groups = input.groups, d = input.group_size(), entries = groups * d * d;
  // One piece: cross moments, diag(weight) S and the two gradients.
  Scratch<A> memory(kOperation, stream, 3 * entries + input.channels);
  A* const numbers = memory;
  const auto cross = contiguous<A>(numbers, groups, d),
             matrix = contiguous<A>(numbers + entries, groups, d),
             dL_dcovariance = contiguous<A>(numbers + 2 * entries, groups, d);
  A* const dL_dmean = numbers + 3 * entries;
  cross_moments_about_mean<T>(dL_doutput, input, state.mean, state.covariance, dL_dbias, cross,
                              stream);
  matrix_backward<A>(map, rule, state.covariance, state.spectrum, state.subspace, weight, dL_dbias,
                     cross, dL_dweight, dL_dmean, dL_dcovariance, matrix, stream);
  const Activations<T> dL_dinput = destination.get();
  require_same_shape(kOperation, "dL_dinput", dL_doutput, dL_dinput);
  affine_backward_about_mean<T>(matrix, dL_doutput, dL_dcovariance, dL_dmean, input, state.mean,
                                state.covariance, dL_dinput, stream);
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
