#include "autograd.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {

Tensor positive_solve(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                      const Tensor& right, bool both) {
  static const auto op = operator_named<decltype(positive_solve)>("keel::positive_solve");
  return op.call(rhs, positive, values, right, both);
}

namespace {

Tensor positive_solve_kernel(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                             const Tensor& right, bool both) {
  if (positive.numel() == 0) return at::zeros_like(rhs);
  const Tensor in_basis = rhs.matmul(right.mT());
  if (!both) return (in_basis * bounded_reciprocal(values, values).unsqueeze(-2)).matmul(right);
  // Antisymmetric to the last bit: what rounding leaves on the diagonal would be divided by a small value.
  const Tensor b = right.matmul(in_basis);
  const Tensor core = (b - b.mT()) * (bounded_reciprocal(pair_sums(values), values) / 2);
  return right.mT().matmul(core).matmul(right);
}

Tensor positive_solve_meta(const Tensor& rhs, const Tensor&, const Tensor&, const Tensor&, bool) {
  return empty_matrices(rhs);
}

/// The numbers come from `values` and `right`; the graph goes through `rhs` and `positive`.
struct PositiveSolveNode : torch::autograd::Function<PositiveSolveNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rhs, const Tensor& positive,
                        const Tensor& values, const Tensor& right, bool both) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    const Tensor solution = positive_solve(rhs, positive, values, right, both);
    ctx->saved_data["both"] = both;
    ctx->save_for_backward({positive, values, right, solution});
    return solution;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(5);
    if (!grads[0].defined()) return input_grads;
    const WithoutAutocast in_its_type;
    const variable_list tensors = ctx->get_saved_variables();
    const Tensor& y = tensors[3];
    const bool both = ctx->saved_data["both"].toBool();
    const Tensor z = positive_solve(grads[0], tensors[0], tensors[1], tensors[2], both);
    Tensor by_positive = -y.mT().matmul(z);
    if (both) by_positive = by_positive - z.matmul(y.mT());
    input_grads[0] = z;
    input_grads[1] = (by_positive + by_positive.mT()) / 2;
    return input_grads;
  }
};

Tensor positive_solve_autograd(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                               const Tensor& right, bool both) {
  if (!needs_graph({rhs, positive})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return positive_solve(rhs, positive, values, right, both);
  }
  return PositiveSolveNode::apply(rhs, positive, values, right, both);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "positive_solve(Tensor rhs, Tensor positive, Tensor values, Tensor right, bool both)"
      " -> Tensor");
}
KEEL_OPERATOR("positive_solve", &positive_solve_kernel, &positive_solve_meta,
              &positive_solve_autograd)

}  // namespace keel::ops
