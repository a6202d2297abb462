#pragma once

#include <cstdint>

namespace keel::bench {

/// Eigen's SelfAdjointEigenSolver on one row-major float matrix; values ascending.
void eigen_eigh(std::int64_t n, const float* matrix, float* values, float* vectors);

}  // namespace keel::bench
