#pragma once

// Block Krylov spaces with a thick restart: the iteration behind eigsh and svds, without gradients. Made of tensor
// operations, so that it runs on both devices. In all tensors here a vector is a row.
//
// Symmetric matrices M have one orthonormal basis Q with M Q = Q H + next R. For others there are two (Golub and Kahan's
// form): A Q = P B and A^T P = Q B^T + next R. In both, eigenvectors or singular vectors of the small H or B give those of
// the matrix, and R their residuals. A is never squared, so small values are as accurate as large ones.

#include <functional>
#include <string>
#include <vector>

#include "types.h"

namespace keel::ops {

/// x A^T for rows x, or x A if `left`. On the CPU by the core, which is several times as fast as BLAS for few rows.
Tensor thin_product(const Tensor& x, const Tensor& a, bool left);

/// A linear map (..., m, n) by its products with vectors, which are rows.
struct Map {
  std::vector<std::int64_t> batch;
  std::int64_t m = 0, n = 0;
  at::TensorOptions options;
  bool symmetric = false;
  bool dense = false;  ///< products cost memory traffic, not a pass over something unknown
  std::function<Tensor(const Tensor&)> times;    ///< (..., b, n) -> (..., b, m)
  std::function<Tensor(const Tensor&)> adjoint;  ///< (..., b, m) -> (..., b, n)

  std::vector<std::int64_t> sizes(std::initializer_list<std::int64_t> last) const {
    std::vector<std::int64_t> all = batch;
    all.insert(all.end(), last);
    return all;
  }
};

/// What is asked for.
struct Wanted {
  std::int64_t count = 1;
  std::string which = "LA";  ///< of a symmetric matrix
  double tolerance = 0;
  std::int64_t steps = 0;  ///< a fixed number of steps, without looking, or 0
  std::int64_t most_steps = 1000;
  Tensor start;  ///< (..., any, n), or undefined
  std::int64_t seed = 0;
};

/// Leading values (..., k) and vectors (..., k, n) or (..., k, m), and more of them that have not converged, which help
/// with the gradient. For a symmetric matrix left and right are the same tensor.
struct Found {
  Tensor values, left, right, more_values, more_left, more_right;
  Tensor residual;  ///< (...), over the largest value
  Tensor largest;   ///< (...)
};

/// The residual that rounding allows: machine epsilons by the root of a product's terms, and by that of the basis' size, since
/// that is how far its rows, each orthogonal to the others up to an epsilon, are from orthonormal together.
double least_tolerance(const Map& map, std::int64_t count);

/// Steps until each matrix has reached the tolerance, or a fixed number of them. A matrix that has reached it keeps its
/// result, so that it does not depend on the others. Matrices that are not large are decomposed as a whole.
Found leading(const Map& map, const Wanted& wanted);

}  // namespace keel::ops
