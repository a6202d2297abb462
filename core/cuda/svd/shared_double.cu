#include "cuda/svd/shared_kernel.cuh"

namespace keel::cuda {
template decltype(svd_shared<double>) svd_shared<double>;
}
