#pragma once

// Stage: the gradient of matrix = diag(weight) S, which scales a layer's matrix S by the learned
// weights. Forward is an elementwise product and needs no function. Backward computes dL_dweight,
// dL_dmean and dL_dlayer_matrix from the cross moments, and the matrix again, all at once.

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// For output = diag(weight) S (input - mean) + bias, with the cross moments P = sum dL_doutput
/// (input - mean)^T (`cross`) and s = sum dL_doutput (`sum`) of each group, it computes
///     dL_dweight_i = sum_j P_ij S_ij
///     dL_dmean = -S^T (weight o s)
///     dL_dlayer_matrix = diag(weight) P
///     matrix = diag(weight) S, which forward need not keep
///
/// - `weight`, `sum`, `dL_dweight` and `dL_dmean` hold one number per channel, group after group. A
///   null weight is one.
/// - A null output is not computed. Without dL_dmean, `sum` is not read.
/// - NaN in a group affects only that group. Sums are taken in a fixed order: results do not depend
///   on the executor or the run, to the last bit.
/// - No groups and d = 0 are valid. Outputs must not overlap inputs.
namespace cpu {
template <typename T>
void weight_backward(const T* weight, Matrices<const T> layer_matrix, const T* sum,
                     Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                     Matrices<T> dL_dlayer_matrix, Matrices<T> matrix,
                     const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// One launch.
template <typename T>
void weight_backward(const T* weight, Matrices<const T> layer_matrix, const T* sum,
                     Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                     Matrices<T> dL_dlayer_matrix, Matrices<T> matrix, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
