// Replaces core/cuda/ in builds without CUDA: every stage throws and says how to enable CUDA.

#include <string>

#include "keel/affine.h"
#include "keel/eigh.h"
#include "keel/error.h"
#include "keel/gradient_rule.h"
#include "keel/layer_matrix.h"
#include "keel/moments.h"
#include "keel/polar.h"
#include "keel/running_average.h"
#include "keel/spectral.h"
#include "keel/svd.h"
#include "keel/weight_backward.h"
#include "keel/whiten.h"

namespace keel::cuda {
namespace {

[[noreturn]] void missing(const char* stage) {
  throw Error(std::string("keel::cuda::") + stage +
              ": this build has no CUDA. Configure with -DKEEL_CUDA=ON where nvcc is found");
}

}  // namespace

#define KEEL_MISSING(T, stage, ...) \
  template <>                       \
  void stage<T>(__VA_ARGS__) {      \
    missing(#stage);                \
  }

// Stages of matrices and statistics.
#define KEEL_MISSING_OF(T)                                                                         \
  KEEL_MISSING(T, eigh, Matrices<const T>, T*, Matrices<T>, EighOrder, EighStatus*, const Stream&) \
  KEEL_MISSING(T, eigvalsh, Matrices<const T>, T*, EighOrder, EighStatus*, const Stream&)          \
  KEEL_MISSING(T, polar, Rectangles<const T>, PolarKind, Rectangles<T>, T*, PolarFactors<T>,       \
               const Stream&)                                                                      \
  KEEL_MISSING(T, polar_backward_from_factors, Rectangles<const T>, PolarFactors<const T>,         \
               Rectangles<const T>, Rectangles<T>, const Stream&)                                  \
  KEEL_MISSING(T, polar_backward, Rectangles<const T>, Rectangles<const T>, PolarKind,             \
               Rectangles<T>, const Stream&)                                                       \
  KEEL_MISSING(T, svd, Rectangles<const T>, T*, Rectangles<T>, Rectangles<T>, SvdStatus*,          \
               const Stream&)                                                                      \
  KEEL_MISSING(T, eigh_backward, const GradientRule&, const T*, Matrices<const T>, const T*,       \
               Matrices<const T>, Matrices<T>, const Stream&)                                      \
  KEEL_MISSING(T, spectral_rank, const RankPolicy&, Matrices<const T>, const T*,                   \
               Matrices<const T>, std::int64_t*, const Stream&)                                    \
  KEEL_MISSING(T, spectral, const SpectralFunction&, const T*, Matrices<const T>,                  \
               const std::int64_t*, Matrices<T>, const Stream&)                                    \
  KEEL_MISSING(T, spectral_backward, const SpectralFunction&, const SpectralRule&, const T*,       \
               Matrices<const T>, const std::int64_t*, Matrices<const T>, Matrices<T>,             \
               const Stream&)                                                                      \
  KEEL_MISSING(T, spectral_second_backward, const SpectralFunction&, const T*, Matrices<const T>,  \
               Matrices<const T>, Matrices<const T>, Matrices<T>, Matrices<T>, const Stream&)      \
  KEEL_MISSING(T, layer_matrix, const LayerMap&, Matrices<const T>, Matrices<T>,                   \
               LayerMatrixState<T>, const Stream&)                                                 \
  KEEL_MISSING(T, layer_matrix_backward, const LayerMap&, const SpectralRule&, Matrices<const T>,  \
               LayerMatrixState<const T>, Matrices<const T>, Matrices<T>, const Stream&)           \
  KEEL_MISSING(T, weight_backward, const T*, Matrices<const T>, const T*, Matrices<const T>, T*,   \
               T*, Matrices<T>, Matrices<T>, const Stream&)                                        \
  KEEL_MISSING(T, running_average, const std::optional<double>&, double, const T*,                 \
               Matrices<const T>, Matrices<const T>, RunningStatistics<T>, const Stream&)          \
  KEEL_MISSING(T, moments_from_partial, const double*, const double*, T*, Matrices<T>,             \
               const Stream&)
KEEL_MISSING_OF(float)
KEEL_MISSING_OF(double)
#undef KEEL_MISSING_OF

// Stages of complex matrices.
#define KEEL_MISSING_OF(T)                                                                \
  KEEL_MISSING(std::complex<T>, eigh, Matrices<const std::complex<T>>, T*,                \
               Matrices<std::complex<T>>, EighOrder, EighStatus*, const Stream&)          \
  KEEL_MISSING(std::complex<T>, eigvalsh, Matrices<const std::complex<T>>, T*, EighOrder, \
               EighStatus*, const Stream&)
KEEL_MISSING_OF(float)
KEEL_MISSING_OF(double)
#undef KEEL_MISSING_OF

// Stages of activations.
#define KEEL_MISSING_OF(T)                                                                       \
  KEEL_MISSING(T, moments, Activations<const T>, Accumulator<T>*, Matrices<Accumulator<T>>,      \
               const Stream&)                                                                    \
  KEEL_MISSING(T, partial_moments, Activations<const T>, const double*, double*, const Stream&)  \
  KEEL_MISSING(T, cross_moments, Activations<const T>, Activations<const T>,                     \
               const Accumulator<T>*, Accumulator<T>*, Matrices<Accumulator<T>>, const Stream&)  \
  KEEL_MISSING(T, affine, Matrices<const Accumulator<T>>, const Accumulator<T>*,                 \
               const Accumulator<T>*, Activations<const T>, Activations<T>, const Stream&)       \
  KEEL_MISSING(T, affine_backward, Matrices<const Accumulator<T>>, Activations<const T>,         \
               Matrices<const Accumulator<T>>, const Accumulator<T>*, Activations<const T>,      \
               const Accumulator<T>*, Activations<T>, const Stream&)                             \
  KEEL_MISSING(T, whiten, const LayerMap&, Activations<const T>, const Accumulator<T>*,          \
               const Accumulator<T>*, const WhitenState<Accumulator<T>>&, const Destination<T>&, \
               const Stream&)                                                                    \
  KEEL_MISSING(T, whiten_apply, const LayerMap&, Activations<const T>, const double*,            \
               const double*, const Accumulator<T>*, const Accumulator<T>*,                      \
               const WhitenState<Accumulator<T>>&, const Destination<T>&, const Stream&)         \
  KEEL_MISSING(T, whiten_backward, const LayerMap&, const SpectralRule&, Activations<const T>,   \
               Activations<const T>, const Accumulator<T>*,                                      \
               const WhitenState<const Accumulator<T>>&, const Destination<T>&, Accumulator<T>*, \
               Accumulator<T>*, const Stream&)                                                   \
  KEEL_MISSING(T, whiten_backward_sums, Activations<const T>, Activations<const T>,              \
               const WhitenState<const Accumulator<T>>&, Accumulator<T>*, Accumulator<T>*,       \
               Accumulator<T>*, const Stream&)                                                   \
  KEEL_MISSING(T, whiten_backward_apply, const LayerMap&, const SpectralRule&,                   \
               Activations<const T>, Activations<const T>, const Accumulator<T>*,                \
               const WhitenState<const Accumulator<T>>&, const Accumulator<T>*, const double*,   \
               const Destination<T>&, const Stream&)
KEEL_MISSING_OF(float)
KEEL_MISSING_OF(double)
KEEL_MISSING_OF(Half)
KEEL_MISSING_OF(BFloat16)

}  // namespace keel::cuda
