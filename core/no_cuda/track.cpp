#include "keel/track.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void track(const std::optional<double>&, double, const T*, Matrices<const T>, Matrices<const T>,
           RunningStatistics<T>, const Stream&) {
  missing("keel::cuda::track");
}

#define KEEL_INSTANTIATE(T)                                                                 \
  template void track<T>(const std::optional<double>&, double, const T*, Matrices<const T>, \
                         Matrices<const T>, RunningStatistics<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
