#include "second_at_repeats.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "autograd.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

/// The tensors of a backward pass. Values, vectors and gradients are part of the loss's graph.
struct BackwardPass {
  Tensor values, vectors;          ///< (..., n) and (..., n, n)
  Tensor dL_dvalues, dL_dvectors;  ///< of the loss; either may be undefined
  Tensor masked;                   ///< the pairs left out
  Tensor largest;                  ///< largest |l|, (...)
};

/// The vector-Jacobian product: gradients of <weights, output> with respect to `inputs`, undefined for unused inputs.
variable_list vjp(const Tensor& output, const Tensor& weights, const variable_list& inputs,
                  bool create_graph) {
  if (!output.defined() || !output.requires_grad()) return variable_list(inputs.size());
  return torch::autograd::grad({output}, inputs, {weights}, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

/// Turns a derivative with respect to V into derivatives along rotations. Entry (i, j) is the one along
/// v_i -> v_i + t v_j, v_j -> v_j - t v_i.
Tensor by_rotations(const Tensor& vectors, const Tensor& by_vectors) {
  const Tensor z = vectors.mT().matmul(by_vectors);
  return z.mT() - z;
}

/// The largest |entry| of each matrix (dims = 2) or of each row of values (dims = 1), as (...).
Tensor size_of(const Tensor& tensor, std::int64_t dims) {
  return dims == 1 ? tensor.abs().amax(-1) : tensor.abs().amax({-2, -1});
}

/// Weights without a pattern, so that a weighted sum vanishes only if its terms do.
Tensor generic_weights(const Tensor& like) {
  const Tensor i = at::arange(like.size(-1), like.options());
  return (1 + i.unsqueeze(-1) + std::sqrt(2.0) * i).cos();
}

/// Whether each matrix has any of these pairs, as (...).
Tensor any_pair(const Tensor& pairs) { return pairs.flatten(-2).any(-1); }

/// 0, 1, 2, ...
Tensor ramp(const Tensor& values) {
  return at::arange(values.size(-1), values.options()).expand_as(values);
}

/// The size of the derivatives of <weights, B>, B = V^T dL_dvectors, for each matrix, in units of B. `first` is along
/// rotations and eigenvalues. `second` is the derivative of the one along eigenvalues.
struct Slopes {
  Tensor first, second;
};

Slopes slopes_of(const BackwardPass& seen, const Tensor& b, const Tensor& weights) {
  const variable_list inputs = {seen.values, seen.vectors};
  Slopes slopes{at::zeros_like(seen.largest), at::zeros_like(seen.largest)};
  const auto grow = [&](Tensor& slope, const variable_list& by, const Tensor& unit) {
    if (by[0].defined())
      slope = at::maximum(slope, unit * seen.largest * size_of(by[0].detach(), 1));
    if (by[1].defined())
      slope = at::maximum(slope, unit * size_of(by_rotations(seen.vectors, by[1]).detach(), 2));
  };
  const variable_list first = vjp(b, weights, inputs, /*create_graph=*/true);
  grow(slopes.first, first, at::ones_like(seen.largest));
  if (first[0].defined())
    grow(slopes.second, vjp(first[0], ramp(seen.values) + 1, inputs, false), seen.largest);
  return slopes;
}

/// Whether the masked rule cannot give the second derivative of a matrix's loss: the loss prefers one of two equal
/// eigenvalues or a basis of their eigenspace, now or as soon as the two separate. Quantities that must vanish for a
/// valid loss are compared with rounding, and with the terms that cancel in them.
Tensor has_no_second_derivative(const BackwardPass& seen) {
  const double epsilon = 16 * double(seen.values.size(-1)) * epsilon_of(seen.values);
  const double cancelled = std::sqrt(epsilon_of(seen.values));
  Tensor refused = at::zeros_like(seen.largest, seen.largest.options().dtype(at::kBool));
  if (seen.dL_dvalues.defined()) {
    const Tensor h = seen.dL_dvalues.detach();
    Tensor size = size_of(h, 1);
    const Tensor curvature =
        vjp(seen.dL_dvalues, ramp(seen.values) + 1, {seen.values}, /*create_graph=*/false)[0];
    if (curvature.defined()) size = size + seen.largest * size_of(curvature, 1);
    const Tensor row = h.unsqueeze(-1), column = h.unsqueeze(-2);
    const Tensor bound =
        cancelled * (row.abs() + column.abs()) + epsilon * size.unsqueeze(-1).unsqueeze(-1);
    refused = any_pair(((row - column).abs() > bound).logical_and(seen.masked));
  }
  if (seen.dL_dvectors.defined()) {
    const Tensor b = seen.vectors.mT().matmul(seen.dL_dvectors), numbers = b.detach();
    const Tensor mask = seen.masked.to(b.scalar_type());
    const Tensor all = generic_weights(b).expand_as(b), inside = mask * all;
    const Slopes turned = slopes_of(seen, b, inside - inside.mT());
    const Slopes terms = slopes_of(seen, b, inside), scale = slopes_of(seen, b, all);
    const Tensor first = size_of(numbers, 2) + scale.first, second = first + scale.second;
    const auto exceeds = [&](const Tensor& number, const Tensor& made_of, const Tensor& rounded) {
      refused = refused.logical_or(number > cancelled * made_of + epsilon * rounded);
    };
    exceeds(size_of(mask * (numbers - numbers.mT()), 2), size_of(mask * numbers, 2), first);
    exceeds(turned.first, terms.first, first);
    exceeds(turned.second, terms.second, second);
  }
  return refused;
}

/// The part of the second derivative <grad_grad_matrix, d dL_dmatrix> inside the masked pairs, in the matrix's basis.
/// Rotating the basis inside an eigenspace moves off-diagonal entries of a symmetric matrix onto the diagonal, and the
/// diagonal is known: it is the derivative with respect to the eigenvalues.
Tensor inside_masked_pairs(const BackwardPass& seen, const Tensor& dL_dmatrix,
                           const Tensor& grad_grad_matrix) {
  // The derivative of dL_dmatrix along eigenvalues that move by 0, 1, 2, ..., as the gradient of a linear function of
  // `any`. That way grad_grad_matrix, which vmap may batch, enters autograd only in the last step.
  const Tensor weights = ramp(seen.values);
  const Tensor any = at::zeros_like(dL_dmatrix).requires_grad_(true);
  const Tensor by_values = vjp(dL_dmatrix, any, {seen.values}, true)[0];
  const Tensor along = vjp(by_values, weights, {any}, true)[0];
  const Tensor by_vectors = vjp(along, grad_grad_matrix, {seen.vectors}, false)[0];
  if (!by_vectors.defined()) return Tensor();
  const at::NoGradGuard no_graph;
  const Tensor apart = weights.unsqueeze(-1) - weights.unsqueeze(-2);
  const Tensor turned = by_rotations(seen.vectors, by_vectors);
  const Tensor middle =
      at::where(seen.masked, turned / (2 * at::where(seen.masked, apart, at::ones_like(apart))),
                at::zeros_like(turned));
  const Tensor inside = seen.vectors.matmul(middle).matmul(seen.vectors.mT());
  return (inside + inside.mT()) / 2;
}

/// The gradient of `tie`, or undefined if it is zero.
Tensor second_at_repeats(const Masked& rule, BackwardPass seen, const Tensor& grad_grad_matrix,
                         bool can_read) {
  if (seen.values.numel() == 0 || seen.values.is_meta()) return Tensor();
  const Tensor values = seen.values.detach();
  seen.masked = masked_pairs(rule, values);
  seen.largest = size_of(values, 1);
  if (can_read && !seen.masked.any().item<bool>()) return Tensor();
  const at::AutoGradMode with_graph(true);
  const WithoutAutocast in_its_type;
  const Tensor dL_dmatrix =
      gradient_rule_formula(rule, seen.values, seen.vectors, seen.dL_dvalues, seen.dL_dvectors);
  const auto nan_at = [&](const Tensor& which) {
    const Tensor poison =
        at::where(which, at::full_like(seen.largest, NAN), at::zeros_like(seen.largest));
    return poison.unsqueeze(-1).unsqueeze(-1).expand_as(seen.vectors);
  };
  // Once functorch has left a level, that level's tensors have no graph.
  if (!can_read && !dL_dmatrix.requires_grad()) return nan_at(any_pair(seen.masked));
  TORCH_CHECK(
      dL_dmatrix.requires_grad(),
      "keel::eigh: no second derivative at repeated eigenvalues by functorch.vjp, jacrev or "
      "hessian, which leave their layer before its backward pass; nest functorch.grad, or "
      "use torch.autograd.functional.hessian");
  const Tensor refused = has_no_second_derivative(seen);
  TORCH_CHECK(
      !can_read || !refused.any().item<bool>(), "keel::eigh: no second derivative under rule ",
      to_string(GradientRule(rule)),
      " at repeated eigenvalues of a loss that depends on the basis inside their eigenspace or "
      "weighs eigenvectors by a function of their eigenvalues, as V f(l) V^T does; expected one "
      "that depends on the eigenspace only as a whole. keel::spectral and its named functions "
      "(sqrtm, inv_sqrtm, invm, logm, expm, powm) have exact second derivatives there");
  const Tensor inside = inside_masked_pairs(seen, dL_dmatrix, grad_grad_matrix);
  if (can_read) return inside;
  return plus(inside, nan_at(refused));
}

/// Whether each matrix has pairs that the rule leaves out, as (...).
Tensor has_repeats(const Masked& rule, const Tensor& values) {
  if (values.sym_numel() == 0)
    return at::zeros_like(values.sum(-1), values.options().dtype(at::kBool));
  return any_pair(masked_pairs(rule, values.detach()));
}

/// Records that `inside`, the second derivative at repeated eigenvalues, cannot be differentiated again. A third
/// derivative is an error, or NaN if the values cannot be read.
void record_no_third_derivative(const Tensor& inside, const variable_list& made_of,
                                const Masked& rule, bool can_read) {
  if (can_read)
    return record_without_derivative(
        "keel::eigh: no third derivative under rule masked at repeated eigenvalues", made_of,
        {inside});
  const auto poison = [rule](const Tensor& derivative, const Tensor& values) {
    return nan_where(has_repeats(rule, values), at::zeros_like(derivative));
  };
  record({.name = "keel::end_of_derivatives",
          .inputs = made_of,
          .outputs = {inside},
          .saved = {made_of[1]},
          .backward = [poison](const GraphNode::Pass& pass) -> variable_list {
            const Tensor by_matrices = poison(pass.grads[0], pass.saved[0]);
            return {by_matrices, by_matrices.sum(-1), by_matrices};
          },
          .forward = [&] { return variable_list{poison(inside, made_of[1])}; }});
}

/// The gradients of dL_dmatrix and of `tie`.
variable_list second_pass(const GraphNode::Pass& pass, const Masked& rule) {
  const Tensor &grad = pass.grads[0], &values = pass.saved[0], &vectors = pass.saved[1];
  const bool can_read = can_read_values(values);
  Tensor inside = second_at_repeats(rule, {values, vectors, pass.saved[2], pass.saved[3], {}, {}},
                                    grad, can_read);
  if (inside.defined() && needs_graph({grad, values, vectors})) {
    inside = inside.detach();
    record_no_third_derivative(inside, {grad, values, vectors}, rule, can_read);
  }
  return {grad, inside};
}

std::string no_second_in_forward_mode(const Masked& rule) {
  return "keel::eigh: no second derivative in forward mode under rule " +
         to_string(GradientRule(rule)) +
         " at repeated eigenvalues; nest torch.func.grad or use two backward passes, which "
         "have it for a loss that depends on an eigenspace only as a whole";
}

Tensor with_second_at_repeats_kernel(const Tensor& dL_dmatrix, const Tensor&, const Tensor&,
                                     const Tensor&, const Optional<Tensor>&,
                                     const Optional<Tensor>&, StringView) {
  return dL_dmatrix.clone();
}

Tensor with_second_at_repeats_autograd(const Tensor& dL_dmatrix, const Tensor& tie,
                                       const Tensor& values, const Tensor& vectors,
                                       const Optional<Tensor>& dL_dvalues,
                                       const Optional<Tensor>& dL_dvectors, StringView rule) {
  const Tensor result = with_second_at_repeats.below_autograd(dL_dmatrix, tie, values, vectors,
                                                              dL_dvalues, dL_dvectors, rule);
  if (!needs_graph({dL_dmatrix})) return result;
  const Masked masked = std::get<Masked>(gradient_rule(text(rule)));
  record({.name = "keel::with_second_at_repeats",
          .inputs = {dL_dmatrix, tie},
          .outputs = {result},
          .saved = {values, vectors, or_undefined(dL_dvalues), or_undefined(dL_dvectors)},
          .backward = [masked](const GraphNode::Pass& pass) { return second_pass(pass, masked); },
          .forward = [&]() -> variable_list {
            return {unless_where(tangent_of(dL_dmatrix), has_repeats(masked, values),
                                 no_second_in_forward_mode(masked))};
          }});
  return result;
}

}  // namespace

Tensor once_at_repeats(const Masked& rule, const Tensor& tangent, const Tensor& values) {
  return without_derivative_where(tangent, has_repeats(rule, values),
                                  no_second_in_forward_mode(rule));
}

// Registered as an operator, so that each level of nested transforms records its own node.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "with_second_at_repeats(Tensor grad_matrix, Tensor tie, Tensor values, Tensor vectors,"
      " Tensor? grad_values, Tensor? grad_vectors, str rule) -> Tensor");
}
KEEL_OPERATOR("with_second_at_repeats", &with_second_at_repeats_kernel,
              &with_second_at_repeats_autograd)

}  // namespace keel::ops
