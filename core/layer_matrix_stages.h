#pragma once

// Variants of the stages before layer_matrix, for its backward. A layer raises eigenvalues below its
// eps to eps, and drops some. Its state holds them as eigh found them.

#include "keel/spectral.h"

namespace keel {

/// The rule by which PCA whitening differentiates eigh. There is no exact one, so Exact means
/// Masked.
GradientRule eigh_rule(const SpectralRule& rule);

// spectral_backward_above is spectral_backward of f(max(value, floor)).
//
// eigh_backward_above is eigh_backward of a loss that depends on the values through max(value,
// floor), and only on the `rank` leading values and vectors of each matrix: two others contribute
// nothing. dL_dvalues and dL_dvectors of the others are zero.
//
// How the rules see values below the floor: weight_above in pair_weight.h.

namespace reference {
void spectral_backward_above(double floor, const SpectralFunction& function,
                             const SpectralRule& rule, const double* values,
                             Matrices<const double> vectors, const std::int64_t* rank,
                             Matrices<const double> dL_dresult, Matrices<double> dL_dmatrix);
void eigh_backward_above(double floor, const std::int64_t* rank, const GradientRule& rule,
                         const double* values, Matrices<const double> vectors,
                         const double* dL_dvalues, Matrices<const double> dL_dvectors,
                         Matrices<double> dL_dmatrix);
}  // namespace reference

namespace cpu {
template <typename T>
void spectral_backward_above(T floor, const SpectralFunction& function, const SpectralRule& rule,
                             const T* values, Matrices<const T> vectors, const std::int64_t* rank,
                             Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                             const Executor& executor);
template <typename T>
void eigh_backward_above(T floor, const std::int64_t* rank, const GradientRule& rule,
                         const T* values, Matrices<const T> vectors, const T* dL_dvalues,
                         Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                         const Executor& executor);
}  // namespace cpu

namespace cuda {
template <typename T>
void spectral_backward_above(T floor, const SpectralFunction& function, const SpectralRule& rule,
                             const T* values, Matrices<const T> vectors, const std::int64_t* rank,
                             Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                             const Stream& stream);
template <typename T>
void eigh_backward_above(T floor, const std::int64_t* rank, const GradientRule& rule,
                         const T* values, Matrices<const T> vectors, const T* dL_dvalues,
                         Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                         const Stream& stream);
}  // namespace cuda

}  // namespace keel
