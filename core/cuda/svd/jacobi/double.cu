#include "cuda/svd/jacobi/kernel.cuh"

namespace keel::cuda {
template decltype(svd_jacobi<double>) svd_jacobi<double>;
}
