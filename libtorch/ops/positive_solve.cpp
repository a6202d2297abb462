// Solves the equation in the symmetric polar factor that second derivatives of procrustes.cpp need.

#include "autograd.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

Tensor positive_solve_kernel(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                             const Tensor& right, bool both, bool symmetric) {
  if (rhs.is_meta()) return empty_matrices(rhs);
  if (positive.numel() == 0) return at::zeros_like(rhs);
  const Tensor in_basis = rhs.matmul(right.mT());
  if (!both) return bounded_quotient(in_basis, values.unsqueeze(-2), values).matmul(right);
  // Make it exactly (anti)symmetric: rounding errors on the diagonal would be divided by a small value.
  const Tensor b = right.matmul(in_basis), part = (symmetric ? b + b.mT() : b - b.mT()) / 2;
  const Tensor core = bounded_quotient(part, pair_sums(values), values);
  return right.mT().matmul(core).matmul(right);
}

/// `values` and `right` give the numbers. Derivatives flow through `rhs` and `positive`.
Tensor positive_solve_autograd(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                               const Tensor& right, bool both, bool symmetric) {
  const Tensor solution =
      positive_solve.below_autograd(rhs, positive, values, right, both, symmetric);
  if (!needs_graph({rhs, positive})) return solution;
  record({.name = "keel::positive_solve",
          .inputs = {rhs, positive},
          .outputs = {solution},
          .saved = {positive, values, right, solution},
          .backward = [both, symmetric](const GraphNode::Pass& pass) -> variable_list {
            const WithoutAutocast in_its_type;
            const variable_list& s = pass.saved;
            const Tensor z = positive_solve(pass.grads[0], s[0], s[1], s[2], both, symmetric);
            Tensor by_positive = -s[3].mT().matmul(z);
            if (both) by_positive = by_positive - z.matmul(s[3].mT());
            return {z, (by_positive + by_positive.mT()) / 2};
          },
          .forward = [&]() -> variable_list {
            const WithoutAutocast in_its_type;
            const Tensor moved = tangent_of(positive), h = primal_of(positive);
            Tensor along = tangent_of(rhs);
            if (moved.defined()) {
              Tensor turned = solution.matmul(moved);
              if (both) turned = turned + moved.matmul(solution);
              along = plus(along, -turned);
            }
            return {positive_solve(along, h, values, right, both, symmetric)};
          }});
  return solution;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "positive_solve(Tensor rhs, Tensor positive, Tensor values, Tensor right, bool both,"
      " bool symmetric=False) -> Tensor");
}
KEEL_OPERATOR("positive_solve", &positive_solve_kernel, &positive_solve_autograd)

}  // namespace keel::ops
