#pragma once

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// Returns `dL_dmatrix` and adds to its second derivative what the masked rule's own backward leaves out at repeated
/// eigenvalues (docs/mathematics.md, section 3). For a backward pass of eigh that builds a graph. `tie` is an output of
/// eigh whose gradient goes straight to the matrix.
///
/// A second derivative that does not exist there, or that the rule cannot give, is an error, and so is a third
/// derivative. During CUDA graph capture and under vmap, where values cannot be read, the matrix gets NaN instead.
inline constexpr Operator<"with_second_at_repeats",
                          Tensor(const Tensor& dL_dmatrix, const Tensor& tie, const Tensor& values,
                                 const Tensor& vectors, const Optional<Tensor>& dL_dvalues,
                                 const Optional<Tensor>& dL_dvectors, StringView rule)>
    with_second_at_repeats;

/// A tangent of eigh under the masked rule. Differentiating it again is an error where eigenvalues repeat.
Tensor once_at_repeats(const Masked& rule, const Tensor& tangent, const Tensor& values);

}  // namespace keel::ops
