#include "cuda/svd/jacobi/kernel.cuh"

namespace keel::cuda {
template decltype(svd_jacobi<float>) svd_jacobi<float>;
}
