#include "keel/spectral.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void spectral_rank(const RankPolicy&, Matrices<const T>, const T*, Matrices<const T>, std::int64_t*,
                   const Stream&) {
  missing("keel::cuda::spectral_rank");
}

template <typename T>
void spectral(const SpectralFunction&, const T*, Matrices<const T>, const std::int64_t*,
              Matrices<T>, const Stream&) {
  missing("keel::cuda::spectral");
}

template <typename T>
void spectral_backward(const SpectralFunction&, const SpectralRule&, const T*, Matrices<const T>,
                       const std::int64_t*, Matrices<const T>, Matrices<T>, const Stream&) {
  missing("keel::cuda::spectral_backward");
}

template <typename T>
void spectral_second_backward(const SpectralFunction&, const T*, Matrices<const T>,
                              Matrices<const T>, Matrices<const T>, Matrices<T>, Matrices<T>,
                              const Stream&) {
  missing("keel::cuda::spectral_second_backward");
}

#define KEEL_INSTANTIATE(T)                                                                       \
  template void spectral_rank<T>(const RankPolicy&, Matrices<const T>, const T*,                  \
                                 Matrices<const T>, std::int64_t*, const Stream&);                \
  template void spectral<T>(const SpectralFunction&, const T*, Matrices<const T>,                 \
                            const std::int64_t*, Matrices<T>, const Stream&);                     \
  template void spectral_backward<T>(const SpectralFunction&, const SpectralRule&, const T*,      \
                                     Matrices<const T>, const std::int64_t*, Matrices<const T>,   \
                                     Matrices<T>, const Stream&);                                 \
  template void spectral_second_backward<T>(const SpectralFunction&, const T*, Matrices<const T>, \
                                            Matrices<const T>, Matrices<const T>, Matrices<T>,    \
                                            Matrices<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
