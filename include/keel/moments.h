#pragma once

// Stage: activations -> mean, covariance of each group; or their sums, for processes to add up. Its gradient is
// part of affine_backward. cross_moments is the same pass over two activations, with which a layer's backward
// starts.

#include <cstdint>

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// The numbers of partial moments: sums over some of the samples, about a shift k of each channel, in
/// float64 and one after another,
///     count,   sum (x - k) of each channel,   sum (x - k)(x - k)^T of each group, both triangles.
/// Those of several processes about the same shift add up number by number to those of all samples.
constexpr std::int64_t partial_moments_size(std::int64_t channels, std::int64_t groups) {
  return 1 + channels + channels * (channels / groups);
}

/// The contract of the stage, for every backend, with A = Accumulator<T>:
///
/// - The covariance is the biased one: divided by the number of samples m = N * S.
/// - One pass over the activations, no centred or transposed copy of them. (Groups of more than
///   128 channels are read in blocks of 128, once for each pair of blocks.)
/// - Sums are taken about a shift found from a few samples of the data, so |mean| >> deviation
///   costs no accuracy; in A over short runs of samples and in float64 across them, so large m
///   costs none.
/// - Range: float32 sums that overflow are computed again in float64, so that a mean or covariance that fits
///   in A is found. (In float64 m times the result has to fit.) On CUDA that costs a pass over two channels by one
///   block for each entry that overflowed, and so does NaN or infinity, up to the first one.
/// - NaN or infinity in a channel leaves nothing finite in that channel's mean and its row and
///   column of the covariance, and reaches no other entry.
/// - Results do not depend on the executor, to the last bit. Orders agree to rounding.
/// - Any C, any d that divides it, N = 0, S = 0 and S = 1 are valid.
/// - Temporary memory: O(threads * tile), and at most 32 sets of C x d sums in float64, but no
///   more sets than m / (16 d) (or one). CUDA: at most 396 sets, and groups of more than 64 channels
///   are read once for each pair of 64-channel blocks.
namespace reference {
void moments(Activations<const double> input, double* mean, Matrices<double> covariance);
void cross_moments(Activations<const double> left, Activations<const double> right,
                   const double* center, double* sum, Matrices<double> cross);
}  // namespace reference

namespace cpu {
template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Executor& executor = serial());

/// The sums about `shift` (channels; null: zero). They are computed about a shift near the data and moved in
/// float64. With no channels nothing is written.
template <typename T>
void partial_moments(Activations<const T> input, const double* shift, double* sums,
                     const Executor& executor = serial());

/// mean (channels) and covariance (groups of d x d, divided by the count) out of sums about `shift`. Reads
/// the lower triangles. No samples give NaN. The covariance is symmetric to the last bit and its diagonal
/// is never negative.
template <typename A>
void moments_from_partial(const double* sums, const double* shift, A* mean, Matrices<A> covariance);

/// cross = sum left (right - center)^T per group, and sum (channels) = sum left, over all samples,
/// in one pass over both. With left = dL_doutput these are the gradients of affine's matrix and
/// bias. Null `center` means zero. Both activations have the same shape, groups and order, and `left` may
/// have a gate.
template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Stream& stream = {});

/// Sums and shift lie on the device.
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
