#pragma once

// What affine and its backward have in common: an output that is the sum of one matrix product for each
// input, and of a bias.

#include <span>

#include "activations_check.h"
#include "keel/activations.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel::cuda {

/// What an input is multiplied with, given a matrix.
enum class Coefficient {
  plain,       ///< the matrix
  transposed,  ///< its transpose
  symmetric,   ///< matrix + transpose, divided
  doubled,     ///< the same of a matrix that is symmetric
};

template <typename T>
struct AffineInput {
  Activations<const T> activations;
  Matrices<const Accumulator<T>> matrix;
  Coefficient coefficient;
  const Accumulator<T>* center;                ///< null: zeros
  Matrices<const Accumulator<T>> spread = {};  ///< covariance about the center, null if not known
};

/// output = sum over inputs of coefficient (input - center), and bias / divisor. Of one or two
/// inputs. `divisor` is also the one of Coefficient::symmetric. `settled`: the inputs are older than the
/// last kernel on the stream.
template <typename T>
void run_affine(const char* operation, std::span<const AffineInput<T>> inputs,
                Accumulator<T> divisor, const Accumulator<T>* bias, Activations<T> output,
                const Stream& stream, bool settled = false);

/// Channels are counted in 32 bits on the device.
template <typename T>
void require_countable(const char* operation, const Activations<T>& x) {
  require(x.channels <= 0x3fffffff,
          std::string(operation) + ": expected at most 2^30 channels, got " + text(x.channels));
}

}  // namespace keel::cuda
