#include "eigen_peer.h"

#include <Eigen/Eigenvalues>

namespace keel::bench {

void eigen_eigh(std::int64_t n, const float* matrix, float* values, float* vectors) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(Eigen::Map<const Matrix>(matrix, n, n));
  Eigen::Map<Eigen::VectorXf>(values, n) = solver.eigenvalues();
  Eigen::Map<Matrix>(vectors, n, n) = solver.eigenvectors();
}

}  // namespace keel::bench
