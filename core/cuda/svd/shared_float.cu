#include "cuda/svd/shared_kernel.cuh"

namespace keel::cuda {
template decltype(svd_shared<float>) svd_shared<float>;
}
