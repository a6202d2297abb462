#include "keel/layer_matrix.h"

#include "missing.h"

namespace keel::cuda {

template <typename T>
void layer_matrix(const LayerMap&, Matrices<const T>, Matrices<T>, LayerMatrixState<T>,
                  const Stream&) {
  missing("keel::cuda::layer_matrix");
}

template <typename T>
void layer_matrix_backward(const LayerMap&, const SpectralRule&, Matrices<const T>,
                           LayerMatrixState<const T>, Matrices<const T>, Matrices<T>,
                           const Stream&) {
  missing("keel::cuda::layer_matrix_backward");
}

#define KEEL_INSTANTIATE(T)                                                                       \
  template void layer_matrix<T>(const LayerMap&, Matrices<const T>, Matrices<T>,                  \
                                LayerMatrixState<T>, const Stream&);                              \
  template void layer_matrix_backward<T>(const LayerMap&, const SpectralRule&, Matrices<const T>, \
                                         LayerMatrixState<const T>, Matrices<const T>,            \
                                         Matrices<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
