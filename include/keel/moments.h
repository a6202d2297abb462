#pragma once

// Stage: activations -> mean and covariance of each group, or their sums, which processes can add
// up. The gradient is part of affine_backward. cross_moments is the same pass over two activations;
// a layer's backward starts with it.

#include <cstdint>

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// The size of partial moments: sums over some of the samples about a shift k of each channel, in
/// float64. In memory, one after another:
///     count,   sum (x - k) of each channel,   sum (x - k)(x - k)^T of each group, both triangles.
/// Partial moments about the same shift can be added element by element: the result is the partial
/// moments of all their samples.
constexpr std::int64_t partial_moments_size(std::int64_t channels, std::int64_t groups) {
  return 1 + channels + channels * (channels / groups);
}

/// The contract of this stage, for every backend, with A = Accumulator<T>:
///
/// - The covariance is biased: it is divided by the number of samples m = N * S.
/// - One pass over the activations, without a centred or transposed copy. (Groups of more than 128
///   channels are read in blocks of 128, once for each pair of blocks.)
/// - Sums are taken about a shift that is estimated from a few samples, so |mean| >> deviation
///   costs no accuracy. They are in A over short runs of samples and in float64 across the runs, so
///   large m costs none either.
/// - Range: where float32 sums overflow, they are computed again in float64, so a mean or
///   covariance that fits in A is found. (In float64, m times the result has to fit.) On CUDA each
///   entry that overflowed costs one block a pass over two channels. NaN or infinity costs the
///   same, up to the first one.
/// - NaN or infinity in a channel leaves nothing finite in that channel's mean and in its row and
///   column of the covariance. It affects no other entry.
/// - Results do not depend on the executor, to the last bit. Results of the two memory orders agree
///   to rounding.
/// - Any C, any d that divides C, N = 0, S = 0 and S = 1 are valid.
/// - Temporary memory: O(threads * tile) and at most 32 sets of C x d sums in float64, but no more
///   than max(1, m / (16 d)) sets. CUDA: at most 396 sets, and groups of more than 64 channels are
///   read once for each pair of 64-channel blocks.
namespace reference {
void moments(Activations<const double> input, double* mean, Matrices<double> covariance);
void cross_moments(Activations<const double> left, Activations<const double> right,
                   const double* center, double* sum, Matrices<double> cross);
}  // namespace reference

namespace cpu {
template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Executor& executor = serial());

/// The sums about `shift` (one number per channel; null means zero). They are computed about a
/// shift near the data and then moved to `shift` in float64. Without channels, nothing is written.
template <typename T>
void partial_moments(Activations<const T> input, const double* shift, double* sums,
                     const Executor& executor = serial());

/// Computes mean (one number per channel) and covariance (one d x d matrix per group, divided by
/// the count) from sums about `shift`. Only the lower triangles are read. If there are no samples,
/// the results are NaN. The covariance is symmetric to the last bit, and its diagonal is never
/// negative.
template <typename A>
void moments_from_partial(const double* sums, const double* shift, A* mean, Matrices<A> covariance);

/// cross = sum left (right - center)^T of each group, and sum = sum left of each channel, over all
/// samples, in one pass over both. With left = dL_doutput these are the gradients of affine's
/// matrix and bias. A null `center` is zero. Both activations have the same shape, groups and
/// order. `left` may have a gate.
template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Stream& stream = {});

/// `sums` and `shift` are in device memory.
template <typename T>
void partial_moments(Activations<const T> input, const double* shift, double* sums,
                     const Stream& stream = {});

/// One launch.
template <typename A>
void moments_from_partial(const double* sums, const double* shift, A* mean, Matrices<A> covariance,
                          const Stream& stream = {});

template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
