// polar: the factor of procrustes.cpp and the symmetric positive one. positive_solve: the equation in the
// positive factor that second derivatives of procrustes.cpp need.

#include "keel/torch/polar.h"

#include "autograd.h"
#include "check.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

Tensor polar_positive_kernel(const Tensor& matrix, const Tensor&, const Tensor& values,
                             const Tensor& right) {
  if (matrix.is_meta()) return empty_beside(matrix, {matrix.sym_size(-1), matrix.sym_size(-1)});
  const WithoutAutocast in_its_type;
  const Tensor vh = in_compute_type(right), s = in_compute_type(values);
  return vh.mH().matmul(s.unsqueeze(-1) * vh).to(matrix.scalar_type());
}

Tensor polar_positive_autograd(const Tensor& matrix, const Tensor& factor, const Tensor& values,
                               const Tensor& right) {
  const Tensor a = in_compute_type(matrix), r = in_compute_type(factor),
               s = in_compute_type(values), vh = in_compute_type(right);
  const Tensor positive = polar_positive.below_autograd(a, r, s, vh);
  if (needs_graph({a}))
    record({.name = "keel::polar_positive",
            // The factor is a function of the matrix, so the whole derivative goes to the matrix.
            .inputs = {a},
            .outputs = {positive},
            .saved = {a, r, s, vh},
            .backward = [](const GraphNode::Pass& pass) -> variable_list {
              const variable_list& t = pass.saved;
              return {polar_positive_backward(pass.grads[0], t[0], t[1], t[2], t[3])};
            },
            .forward = [&]() -> variable_list {
              const WithoutAutocast in_its_type;
              const Tensor along = tangent_of(a), at = primal_of(a), r_at = primal_of(r);
              const Tensor turned = procrustes_backward(along, at, r_at, s, vh);
              const Tensor h = r_at.mH().matmul(along) + turned.mH().matmul(at);
              return {(h + h.mH()) / 2};
            }});
  return positive.to(matrix.scalar_type());
}

/// U C V^H with C_ij = s_i (P_ij + conj(P_ji)) / (s_i + s_j) and P = V^H dL_dpositive V. In the complement of V, s_i is paired
/// with 0.
Tensor polar_positive_backward_kernel(const Tensor& grad_positive, const Tensor& matrix,
                                      const Tensor& factor, const Tensor& values,
                                      const Tensor& right) {
  if (matrix.is_meta()) return empty_matrices(matrix);
  const WithoutAutocast in_its_type;
  if (values.numel() == 0) return at::zeros_like(matrix);
  const Tensor s = in_compute_type(values), vh = in_compute_type(right), v = vh.mH();
  const Tensor g = in_compute_type(grad_positive), both = g + g.mH(), both_v = both.matmul(v);
  const Tensor column = s.unsqueeze(-1), sums = pair_sums(s);
  const Tensor core = vh.matmul(both_v) * bounded_quotient(column.expand_as(sums), sums, s);
  const Tensor beside = both_v.mH() * bounded_quotient(column, column, s);
  return in_both_bases(in_compute_type(factor).matmul(v), vh, core, Tensor(), beside)
      .to(matrix.scalar_type());
}

/// The same from positive = factor^H matrix, in differentiable operations.
Tensor polar_positive_backward_autograd(const Tensor& grad_positive, const Tensor& matrix,
                                        const Tensor& factor, const Tensor& values,
                                        const Tensor& right) {
  const auto compute = [&] {
    return polar_positive_backward.below_autograd(grad_positive, matrix, factor, values, right);
  };
  if (!needs_graph({grad_positive, matrix, factor})) return compute();
  const WithoutAutocast in_its_type;
  const Tensor a = in_compute_type(matrix), r = in_compute_type(factor);
  const Tensor grad = in_compute_type(grad_positive), g = (grad + grad.mH()) / 2;
  const Tensor formula =
      r.matmul(g) +
      procrustes_backward(a.matmul(g), a, r, in_compute_type(values), in_compute_type(right));
  return with_derivatives_of(compute(), formula.to(matrix.scalar_type()));
}

Tensors<2> polar_of(const Tensor& matrix) {
  check_rectangles("keel::polar", matrix, Numbers::real_or_complex);
  const auto [factor, values, right] = procrustes(in_compute_type(matrix), false);
  const Tensor positive = polar_positive(in_compute_type(matrix), factor, values, right);
  return {factor.to(matrix.scalar_type()), positive.to(matrix.scalar_type())};
}

/// With a gradient, the trace of the positive factor, of the matrix or its adjoint, whichever factor is smaller.
Tensor nuclear_norm_of(const Tensor& matrix) {
  check_rectangles("keel::nuclear_norm", matrix, Numbers::real_or_complex);
  if (!needs_graph({matrix})) return svdvals(matrix).sum(-1);
  const Tensor tall = matrix.sym_size(-2) < matrix.sym_size(-1) ? matrix.mH() : matrix;
  return at::real(std::get<1>(polar_of(tall)).diagonal(0, -2, -1)).sum(-1);
}

Tensor positive_solve_kernel(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                             const Tensor& right, bool both, bool symmetric) {
  if (rhs.is_meta()) return empty_matrices(rhs);
  if (positive.numel() == 0) return at::zeros_like(rhs);
  const Tensor in_basis = rhs.matmul(right.mH());
  if (!both) return bounded_quotient(in_basis, values.unsqueeze(-2), values).matmul(right);
  // Make it exactly (anti)symmetric: rounding errors on the diagonal would be divided by a small value.
  const Tensor b = right.matmul(in_basis), part = (symmetric ? b + b.mH() : b - b.mH()) / 2;
  const Tensor core = bounded_quotient(part, pair_sums(values), values);
  return right.mH().matmul(core).matmul(right);
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
            Tensor by_positive = -s[3].mH().matmul(z);
            if (both) by_positive = by_positive - z.matmul(s[3].mH());
            return {z, (by_positive + by_positive.mH()) / 2};
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
  m.def("polar(Tensor matrix) -> (Tensor factor, Tensor positive)", &polar_of);
  m.def("nuclear_norm(Tensor matrix) -> Tensor", &nuclear_norm_of);
  m.def("polar_positive(Tensor matrix, Tensor factor, Tensor values, Tensor right) -> Tensor");
  m.def(
      "polar_positive_backward(Tensor grad_positive, Tensor matrix, Tensor factor, Tensor values,"
      " Tensor right) -> Tensor");
  m.def(
      "positive_solve(Tensor rhs, Tensor positive, Tensor values, Tensor right, bool both,"
      " bool symmetric=False) -> Tensor");
}
KEEL_OPERATOR("polar_positive", &polar_positive_kernel, &polar_positive_autograd)
KEEL_OPERATOR("polar_positive_backward", &polar_positive_backward_kernel,
              &polar_positive_backward_autograd)
KEEL_OPERATOR("positive_solve", &positive_solve_kernel, &positive_solve_autograd)

}  // namespace keel::ops

namespace keel {

Polar polar(const torch::Tensor& matrix) {
  auto [factor, positive] = ops::polar_of(matrix);
  return {std::move(factor), std::move(positive)};
}

torch::Tensor nuclear_norm(const torch::Tensor& matrix) { return ops::nuclear_norm_of(matrix); }

}  // namespace keel
