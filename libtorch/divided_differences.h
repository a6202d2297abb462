#pragma once

#include "keel/torch/spectral.h"
#include "types.h"

namespace keel::ops {

/// f, f' and f'' at (..., n) values.
struct Jet {
  Tensor f, slope, curve;

  /// By autograd, and differentiable with respect to what f uses. Without `kept` all values are. If the matrix needs a
  /// gradient, an f that does not map each value by itself is an error (on the CPU).
  static Jet of(const char* operation, const ElementwiseFunction& f, const Tensor& matrix,
                const Tensor& values, const Tensor& kept);
};

/// f[x, y] = (f(x) - f(y)) / (x - y) for all pairs of values, as (..., n, n), also where they meet. docs/mathematics.md,
/// "A function of your own", derives the formulas and their errors. Not differentiable.
struct DividedDifferences {
  Tensor gap;    ///< x - y
  Tensor near;   ///< whether the pair is too close for the quotient
  Tensor noise;  ///< a bound for the rounding error of f(x) - f(y)
  Tensor value;

  DividedDifferences(const Tensor& values, const Jet& jet);

  /// f[x, x, y], the derivative of f[x, y] with respect to x.
  Tensor along_first(const Tensor& values, const Jet& jet) const;
};

}  // namespace keel::ops
