#include "keel/eigh.h"

#include "keel/error.h"

namespace keel::cuda {

template <typename T>
void eigh(Matrices<const T>, T*, Matrices<T>, EighStatus*, Stream) {
  throw Error(
      "keel::cuda::eigh: this build has no CUDA. Configure with -DKEEL_CUDA=ON where nvcc is "
      "found");
}

template void eigh(Matrices<const float>, float*, Matrices<float>, EighStatus*, Stream);
template void eigh(Matrices<const double>, double*, Matrices<double>, EighStatus*, Stream);

}  // namespace keel::cuda
