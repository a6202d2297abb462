#pragma once

// What affine and its backward have in common: the output is a bias plus one matrix product per
// input.

#include <span>

#include "activations_check.h"
#include "keel/activations.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel::cuda {

/// How the coefficients of an input follow from its matrix.
enum class Coefficient {
  plain,       ///< the matrix
  transposed,  ///< its transpose
  symmetric,   ///< (matrix + transpose) / divisor
  doubled,     ///< 2 matrix / divisor: the same for a symmetric matrix
};

template <typename T>
struct AffineInput {
  Activations<const T> activations;
  Matrices<const Accumulator<T>> matrix;
  Coefficient coefficient;
  const Accumulator<T>* center;                    ///< null: zeros
  Matrices<const Accumulator<T>> covariance = {};  ///< about the center; null if not known
};

/// output = sum over the one or two inputs of coefficient (input - center), plus bias / divisor.
/// `inputs_ready`: the inputs are older than the last kernel on the stream.
template <typename T>
void run_affine(const char* operation, std::span<const AffineInput<T>> inputs,
                Accumulator<T> divisor, const Accumulator<T>* bias, Activations<T> output,
                const Stream& stream, bool inputs_ready = false);

/// Channels are counted in 32 bits on the device.
template <typename T>
void require_countable(const char* operation, const Activations<T>& x) {
  require(x.channels <= 0x3fffffff,
          std::string(operation) + ": expected at most 2^30 channels, got " + text(x.channels));
}

template <typename T>
struct AffineTask;  // kernel.cuh

/// Runs the task if its channels fill slabs of 64 and a kernel for its group size fits this device.
/// Returns whether it did. For T that is summed in float32.
template <typename T>
bool run_on_full_slabs(const char* operation, AffineTask<T>& task, const Stream& stream);

}  // namespace keel::cuda
