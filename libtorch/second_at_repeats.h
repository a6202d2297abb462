#pragma once

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// Behind a backward pass of eigh under the masked rule that builds a graph: `dL_dmatrix` again, with
/// what the rule's own backward leaves out at repeated eigenvalues added to its second derivative
/// (docs/mathematics.md, section 3). `tie` is an output of eigh whose gradient goes straight to the
/// matrix. A loss that has no second derivative there, or one that the rule cannot give, is an error, and so
/// is a third derivative; in a CUDA graph's capture and under vmap, where nothing can be waited for, its
/// matrix gets NaN.
inline constexpr Operator<"with_second_at_repeats",
                          Tensor(const Tensor& dL_dmatrix, const Tensor& tie, const Tensor& values,
                                 const Tensor& vectors, const Optional<Tensor>& dL_dvalues,
                                 const Optional<Tensor>& dL_dvectors, StringView rule)>
    with_second_at_repeats;

/// A tangent of eigh under the masked rule, which in forward mode can be differentiated again only where no eigenvalues
/// repeat.
Tensor once_at_repeats(const Masked& rule, const Tensor& tangent, const Tensor& values);

}  // namespace keel::ops
