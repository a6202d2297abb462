#include "keel/running_average.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void running_average(const std::optional<double>&, double, const T*, Matrices<const T>,
                     Matrices<const T>, RunningStatistics<T>, const Stream&) {
  missing("keel::cuda::running_average");
}

#define KEEL_INSTANTIATE(T)                                                                    \
  template void running_average<T>(const std::optional<double>&, double, const T*,             \
                                   Matrices<const T>, Matrices<const T>, RunningStatistics<T>, \
                                   const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
