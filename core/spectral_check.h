#pragma once

// Argument checks of every backend of eigh_backward, the spectral stages and layer_matrix.

#include <variant>

#include "keel/layer_matrix.h"
#include "keel/spectral.h"
#include "shape.h"

namespace keel {

/// `values` has n numbers for each matrix, and `rank` one.
template <typename T>
void require_spectrum(const char* operation, const Matrices<const T>& vectors, const T* values,
                      const std::int64_t* rank) {
  require_numbers(operation, "values", values, vectors.batch * vectors.n);
  require_numbers(operation, "ranks", rank, vectors.batch);
}

template <typename T>
void check_eigh_backward(const char* operation, const GradientRule& rule, const T* values,
                         const Matrices<const T>& vectors, const Matrices<const T>& dL_dvectors,
                         const Matrices<T>& dL_dmatrix) {
  validate(rule);
  require_given(operation, "vectors", vectors);
  require_numbers(operation, "values", values, vectors.batch * vectors.n);
  require_same_shape_or_null(operation, "dL_dvectors", vectors, dL_dvectors);
  require_same_shape(operation, "dL_dmatrix", vectors, dL_dmatrix);
}

template <typename T>
void check_spectral_rank(const char* operation, const RankPolicy& policy,
                         const Matrices<const T>& matrices, const T* values,
                         const Matrices<const T>& vectors, const std::int64_t* rank) {
  validate(policy);
  require_given(operation, "vectors", vectors);
  require_spectrum(operation, vectors, values, rank);
  if (std::holds_alternative<Algorithm1>(policy))
    require_same_shape(operation, "matrices", vectors, matrices);
}

template <typename T>
void check_spectral(const char* operation, const T* values, const Matrices<const T>& vectors,
                    const std::int64_t* rank, const Matrices<T>& result) {
  require_given(operation, "vectors", vectors);
  require_spectrum(operation, vectors, values, rank);
  require_same_shape(operation, "result", vectors, result);
}

template <typename T>
void check_spectral_backward(const char* operation, const SpectralRule& rule, const T* values,
                             const Matrices<const T>& vectors, const std::int64_t* rank,
                             const Matrices<const T>& dL_dresult, const Matrices<T>& dL_dmatrix) {
  validate(rule);
  require_given(operation, "vectors", vectors);
  require_spectrum(operation, vectors, values, rank);
  require_same_shape(operation, "dL_dresult", vectors, dL_dresult);
  require_same_shape(operation, "dL_dmatrix", vectors, dL_dmatrix);
}

template <typename T>
void check_spectral_second_backward(const char* operation, const T* values,
                                    const Matrices<const T>& vectors,
                                    const Matrices<const T>& dL_dresult,
                                    const Matrices<const T>& dL2_ddL_dmatrix,
                                    const Matrices<T>& dL2_ddL_dresult,
                                    const Matrices<T>& dL2_dmatrix) {
  require_given(operation, "vectors", vectors);
  require_numbers(operation, "values", values, vectors.batch * vectors.n);
  if (dL2_dmatrix) require_same_shape(operation, "dL_dresult", vectors, dL_dresult);
  require_same_shape_or_null(operation, "dL_dresult", vectors, dL_dresult);
  require_same_shape(operation, "dL2_ddL_dmatrix", vectors, dL2_ddL_dmatrix);
  require_same_shape_or_null(operation, "dL2_ddL_dresult", vectors, dL2_ddL_dresult);
  require_same_shape_or_null(operation, "dL2_dmatrix", vectors, dL2_dmatrix);
}

template <typename T>
void check_layer_matrix(const char* operation, const LayerMap& map,
                        const Matrices<const T>& covariance, const Matrices<T>& result,
                        const LayerMatrixState<T>& state) {
  validate(map);
  require_given(operation, "covariance", covariance);
  require_same_shape(operation, "result", covariance, result);
  require_same_shape(operation, "state.vectors", covariance, state.vectors);
  require_spectrum<T>(operation, covariance, state.values, state.rank);
}

template <typename T>
void check_layer_matrix_backward(const char* operation, const LayerMap& map,
                                 const SpectralRule& rule, const Matrices<const T>& covariance,
                                 const LayerMatrixState<const T>& state,
                                 const Matrices<const T>& dL_dlayer_matrix,
                                 const Matrices<T>& dL_dcovariance) {
  validate(map);
  validate(rule);
  require_given(operation, "covariance", covariance);
  require_same_shape(operation, "state.vectors", covariance, state.vectors);
  require_spectrum(operation, covariance, state.values, state.rank);
  require_same_shape(operation, "dL_dlayer_matrix", covariance, dL_dlayer_matrix);
  require_same_shape(operation, "dL_dcovariance", covariance, dL_dcovariance);
}

}  // namespace keel
