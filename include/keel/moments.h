#pragma once

// Stage: activations -> mean, covariance of each group. Back: dL_dmean, dL_dcovariance ->
// dL_dinput. cross_moments is the same pass over two activations: what a layer's backward starts
// with.

#include <cstdint>

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// Sums over some of the samples, about a shift k of each channel, in float64:
///     sum = sum (x - k)        second = sum (x - k)(x - k)^T   (per group, both triangles)
/// Two of them about the same shift add up entry by entry, so this is what a distributed layer
/// reduces across ranks (after `rebase` to a shift all ranks share). A view: it owns nothing.
struct PartialMoments {
  std::int64_t channels = 0;
  std::int64_t groups = 1;
  std::int64_t count = 0;
  double* shift = nullptr;   ///< channels
  double* sum = nullptr;     ///< channels
  double* second = nullptr;  ///< groups x d x d, d = channels / groups
};

/// The same sums about another shift.
void rebase(PartialMoments& moments, const double* shift);

/// into += from, each about its own shift; `into` keeps its own. An empty `into` takes `from`'s
/// shift.
void combine(PartialMoments& into, const PartialMoments& from);

/// mean (channels) and covariance (groups of d x d, divided by count) out of the sums. No samples
/// give NaN. The covariance is symmetric to the last bit and its diagonal is never negative.
template <typename T>
void mean_and_covariance(const PartialMoments& moments, T* mean, Matrices<T> covariance);

/// The contract of the stage, for every backend, with A = Accumulator<T>:
///
/// - The covariance is the biased one: divided by the number of samples m = N * S.
/// - One pass over the activations, no centred or transposed copy of them. (Groups of more than
///   128 channels are read in blocks of 128, once for each pair of blocks.)
/// - Sums are taken about a shift found from a few samples of the data, so |mean| >> deviation
///   costs no accuracy; in A over short runs of samples and in float64 across them, so large m
///   costs none.
/// - Range: on the CPU, float32 sums that overflow are taken again in float64, so that a mean or covariance
///   that fits in A is found. (In float64 m times it has to fit.) On CUDA the squares of up to 4096
///   deviations have to sum up to a number of A: in float32, deviations of 1e17 and more may overflow.
/// - NaN or infinity in a channel leaves nothing finite in that channel's mean and its row and
///   column of the covariance, and reaches no other entry.
/// - Results do not depend on the executor, to the last bit. Orders agree to rounding.
/// - Any C, any d that divides it, N = 0, S = 0 and S = 1 are valid.
/// - Temporary memory: O(threads * tile), and at most 32 sets of C x d sums in float64, but no
///   more sets than m / (16 d) (or one). CUDA: at most 396 sets, and groups of more than 64 channels
///   are read once for each pair of 64-channel blocks.
namespace reference {
void moments(Activations<const double> input, double* mean, Matrices<double> covariance);
void moments_backward(Activations<const double> input, const double* mean, const double* dL_dmean,
                      Matrices<const double> dL_dcovariance, Activations<double> dL_dinput);
void cross_moments(Activations<const double> left, Activations<const double> right,
                   const double* center, double* sum, Matrices<double> cross);
}  // namespace reference

namespace cpu {
/// Fills shift, sum, second and count.
template <typename T>
void partial_moments(Activations<const T> input, PartialMoments& moments,
                     const Executor& executor = serial());

template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Executor& executor = serial());

/// dL_dinput = (2/m) sym(dL_dcovariance) (input - mean) + (1/m) dL_dmean. Either gradient may be
/// null. A layer does this and the backward of affine in one pass: see affine_backward.
template <typename T>
void moments_backward(Activations<const T> input, const Accumulator<T>* mean,
                      const Accumulator<T>* dL_dmean, Matrices<const Accumulator<T>> dL_dcovariance,
                      Activations<T> dL_dinput, const Executor& executor = serial());

/// cross = sum left (right - center)^T per group, and sum (channels) = sum left, over all samples,
/// in one pass over both. With left = dL_doutput these are the gradients of affine's matrix and
/// bias. Null `center` means zero. Both activations have the same shape, groups and order.
template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// `moments`' pointers are the device's. Fills shift, sum and second; count is set on the host.
template <typename T>
void partial_moments(Activations<const T> input, PartialMoments& moments,
                     const Stream& stream = {});

template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Stream& stream = {});

template <typename T>
void moments_backward(Activations<const T> input, const Accumulator<T>* mean,
                      const Accumulator<T>* dL_dmean, Matrices<const Accumulator<T>> dL_dcovariance,
                      Activations<T> dL_dinput, const Stream& stream = {});

template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
