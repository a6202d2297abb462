#pragma once

// Complex matrices. Once a matrix is decomposed, everything else is either real or a product, so only the svd, and a way back
// to the core's real functions, are here.

#include "types.h"

namespace keel::ops {

/// U, S and V^H of (..., m, n) matrices, as keel/svd.h promises them: in each column of U the entry of largest magnitude is
/// real and positive. LibTorch's decomposition (LAPACK, cuSOLVER) does the work. On CUDA it waits for the device.
Tensors<3> complex_svd(const Tensor& matrix);

/// The symmetric or Hermitian matrix whose lower triangle is given. Imaginary parts on the diagonal are not read.
Tensor hermitian_of_lower(const Tensor& matrix);

/// (M + M^H) / 2.
Tensor hermitian_part(const Tensor& matrix);

/// Identities (..., n, n) for (..., n) eigenvalues. With them for eigenvectors, the core's functions give what happens to the
/// eigenvalues alone.
Tensor units_beside(const Tensor& values);

/// Hermitian H as the symmetric matrix [[Re H, -Im H], [Im H, Re H]] of twice the size. Functions of matrices, their
/// derivatives and products are the same there, so the core's real ones give the complex ones. Each eigenvalue appears
/// twice, with the vectors of v and iv.
namespace real_form {
Tensor of_matrix(const Tensor& hermitian);
Tensor of_values(const Tensor& values);
Tensor of_vectors(const Tensor& vectors);
/// The Hermitian matrix whose real form this is.
Tensor back(const Tensor& symmetric);
}  // namespace real_form

}  // namespace keel::ops
